//! The body of a response is read where its loss can still be mended, is thrown away where another attempt follows,
//! and ends with the call's time where it streams.
//!
//! - [`read`] takes a body whose length is known and small, so that the attempt that lost a part of it is repeated.
//!   All else that the response holds is kept: its URL, version, extensions and remote address.
//! - [`discard`] takes what is left of a small body, so that its connection can be used again, and drops a larger one,
//!   with its connection or its stream.
//! - [`bound`] gives a body that streams its end in time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{error, io};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use reqwest::{Body, Response, ResponseBuilderExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// How much of the body is still to come; `None` where nobody said.
///
/// Over HTTP/2, hyper takes the length that an answer to HEAD would have for that of its body, and believes a 204 that
/// has one.
pub(crate) fn length(response: &Response, method: &Method) -> Option<u64> {
    if method == Method::HEAD || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Some(0);
    }
    response.content_length()
}

/// Reads the whole body, which has the expected length, until `end` at the latest, and puts it back.
pub(crate) async fn read(mut response: Response, expected: u64, end: Instant) -> Result<Response, Unread> {
    let body = match timeout_at(end, collect(&mut response, expected)).await {
        Err(_) => return Err(Unread::Late),
        Ok(Err(error)) => return Err(Unread::Failed(error)),
        Ok(Ok(body)) => body,
    };
    // Over HTTP/2 a body can end early without an error.
    if body.len() as u64 != expected {
        return Err(Unread::Short { expected, received: body.len() as u64 });
    }
    Ok(replace(response, |_| Body::from(body)))
}

/// Why a body is not there.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It took too long.
    Late,
    /// It broke off with an error.
    Failed(reqwest::Error),
    /// It broke off without one.
    Short { expected: u64, received: u64 },
}

/// Makes the connection of a response free for another attempt, until `end` at the latest.
pub(crate) async fn discard(mut response: Response, end: Instant) {
    if response.content_length().is_some_and(|length| length > MAX_DISCARDED as u64) {
        return;
    }
    let drain = async {
        let mut left = MAX_DISCARDED;
        while let Ok(Some(chunk)) = response.chunk().await {
            match left.checked_sub(chunk.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // Whatever became of it, the response is dropped now, and with it what was not read.
    timeout_at(end.min(Instant::now() + MAX_DRAIN), drain).await.unwrap_or_default();
}

/// Lets the body fail at `end`, if it has not ended by then.
pub(crate) fn bound(response: Response, end: Instant) -> Response {
    replace(response, |body| Body::wrap(Bounded { body, end: sleep_until(end) }))
}

async fn collect(response: &mut Response, expected: u64) -> reqwest::Result<Bytes> {
    let first = response.chunk().await?.unwrap_or_default();
    let Some(second) = response.chunk().await? else {
        return Ok(first);
    };
    let mut whole = BytesMut::with_capacity(usize::try_from(expected).unwrap_or_default());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while let Some(chunk) = response.chunk().await? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

/// The response with another body.
fn replace(response: Response, body: impl FnOnce(Body) -> Body) -> Response {
    // reqwest keeps the URL apart, and takes it from an extension that only this trait can make.
    let url = http::Response::builder().url(response.url().clone()).body(()).map(http::Response::into_parts);
    let (mut parts, old) = http::Response::<Body>::from(response).into_parts();
    let (url, ()) = url.expect("a builder that was given nothing but a URL");
    parts.extensions.extend(url.extensions);
    Response::from(http::Response::from_parts(parts, body(old)))
}

pin_project! {
    /// A body that has to end in time.
    struct Bounded {
        #[pin]
        body: Body,
        #[pin]
        end: Sleep,
    }
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = Box<dyn error::Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        // First, or a body that always has more would never end.
        if this.end.poll(cx).is_ready() {
            // Whoever has read all of it and asks late still learns that it has ended.
            if let end @ Poll::Ready(None) = this.body.poll_frame(cx).map_err(Into::into) {
                return end;
            }
            // reqwest takes this kind of error for a timeout.
            return Poll::Ready(Some(Err(
                io::Error::new(io::ErrorKind::TimedOut, "the time for the call is up").into()
            )));
        }
        this.body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How much of a response that nobody wants is read, in bytes.
const MAX_DISCARDED: usize = 64 * 1024;

/// For how long it is read. What has not arrived by then would cost more than another connection.
const MAX_DRAIN: Duration = Duration::from_millis(100);
