//! A handler's response is read to its end, or to the point where reading on would be wrong.
//!
//! Read are bodies whose end can be awaited. Not read at all are event streams, upgrades (101) and answers to CONNECT.
//! Reading stops at the cap, and for a body of unknown length one second after the headers: a stream that goes on
//! belongs to the client now, not to the record. What was read is never lost; the client gets it first, then the rest.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame};
use tokio::time::{Instant, timeout_at};

use crate::body::{ResponseBody, poll_bytes};
use crate::joined::Joined;
use crate::store::TombstoneReason;

/// A response's body, as far as it was read.
pub(crate) enum Collected<B: Body> {
    /// To its end.
    Whole { data: Bytes, trailers: Option<Box<HeaderMap>> },
    /// Not to its end, for this reason; the body is what the client gets.
    Unfinished { reason: TombstoneReason, body: ResponseBody<B> },
    /// It failed; the body is what the client gets.
    Failed { body: ResponseBody<B> },
}

/// Why a response is not read at all, if so.
pub(crate) fn uncollectable(method: &Method, parts: &Parts) -> Option<TombstoneReason> {
    let tunnel = method == Method::CONNECT && parts.status.is_success();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS || tunnel {
        return Some(TombstoneReason::Upgraded);
    }
    let content_type = parts.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let is_event_stream =
        content_type.get(..EVENT_STREAM.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM));
    is_event_stream.then_some(TombstoneReason::Streamed)
}

/// Reads a body to its end, its `cap` in bytes, or its time.
pub(crate) async fn collect<B: Body>(body: B, cap: usize) -> Collected<B> {
    let hint = body.size_hint();
    if hint.lower() > cap as u64 {
        return Collected::Unfinished { reason: TombstoneReason::TooLarge, body: ResponseBody::handler(body) };
    }
    let mut read = Read::default();
    if hint.exact().is_some() {
        // In place: it ends within the cap. One that has lied is cut behind all that it promised, as a server cuts it.
        return match read.all_of(pin!(body), cap, None).await {
            End::Reached => read.into_collected(),
            End::Error(error) => read.into_failed(error),
            End::Stopped(reason) => {
                Collected::Unfinished { reason, body: ResponseBody::whole(read.data.finish(), read.trailers) }
            }
        };
    }
    // In a box, since one that turns out to be a stream is moved on to the client after it was polled.
    let mut body = Box::pin(body);
    match read.all_of(body.as_mut(), cap, Some(Instant::now() + STREAM_PATIENCE)).await {
        End::Reached => read.into_collected(),
        End::Error(error) => read.into_failed(error),
        End::Stopped(reason) => {
            Collected::Unfinished { reason, body: ResponseBody::resumed(read.data.finish(), read.trailers, body) }
        }
    }
}

/// Where reading ended.
enum End<E> {
    Reached,
    Error(E),
    /// Before its end, for this reason.
    Stopped(TombstoneReason),
}

/// What was read so far.
#[derive(Default)]
struct Read {
    data: Joined,
    bytes: usize,
    trailers: Option<Box<HeaderMap>>,
}

impl Read {
    /// Reads a body to its end, the cap or the deadline.
    async fn all_of<B: Body>(&mut self, mut body: Pin<&mut B>, cap: usize, deadline: Option<Instant>) -> End<B::Error> {
        while self.bytes <= cap {
            let frame = poll_fn(|cx| poll_bytes(body.as_mut(), cx));
            let frame = match deadline {
                None => frame.await,
                // Streams have a timer, and no other body has room for it.
                Some(deadline) => match Box::pin(timeout_at(deadline, frame)).await {
                    Ok(frame) => frame,
                    Err(_) => return End::Stopped(TombstoneReason::Streamed),
                },
            };
            match frame {
                Some(Ok(frame)) => self.push(frame),
                Some(Err(error)) => return End::Error(error),
                None => return End::Reached,
            }
        }
        End::Stopped(TombstoneReason::TooLarge)
    }

    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => {
                self.bytes += data.len();
                self.data.push(data);
            }
            Err(frame) => self.trailers = frame.into_trailers().ok().map(Box::new),
        }
    }

    fn into_collected<B: Body>(self) -> Collected<B> {
        Collected::Whole { data: self.data.finish(), trailers: self.trailers }
    }

    fn into_failed<B: Body>(self, error: B::Error) -> Collected<B> {
        Collected::Failed { body: ResponseBody::failed(self.data.finish(), self.trailers, error) }
    }
}

/// How long a body of unknown length may take to end, from the headers on.
const STREAM_PATIENCE: Duration = Duration::from_secs(1);

/// The media type of server-sent events (HTML Living Standard, section 9.2).
const EVENT_STREAM: &[u8] = b"text/event-stream";

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use http_body::SizeHint;
    use http_body_util::BodyExt;

    use super::*;

    /// Ten bytes, five at a time, of a body that has promised two.
    struct Liar(usize);

    impl Body for Liar {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0 += 1;
            Poll::Ready((self.0 <= 2).then(|| Ok(Frame::data(Bytes::from_static(b"abcde")))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(2)
        }
    }

    /// Fails when `collect` reads on after the cap because of what the body has promised, or takes what was read by then for
    /// the whole.
    #[tokio::test]
    async fn a_body_that_gives_more_than_it_promised_is_no_result_beyond_the_cap() {
        let Collected::Unfinished { reason: TombstoneReason::TooLarge, body } = collect(Liar(0), 4).await else {
            panic!("it is too large");
        };
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "abcde");
        let Collected::Whole { data, .. } = collect(Liar(0), 10).await else { panic!("it is whole") };
        assert_eq!(data, "abcdeabcde");
    }
}
