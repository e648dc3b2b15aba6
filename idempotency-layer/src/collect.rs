//! A handler's response is read to its end, or to the point where reading on would be wrong.
//!
//! Read are bodies whose end can be awaited. Not read at all are event streams, upgrades (101) and answers to CONNECT.
//! Reading stops at the cap, and for a body of unknown length one second after the headers: a stream that goes on
//! belongs to the client now, not to the record. What was read is never lost; the client gets it first, then the rest.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame};
use tokio::time::Instant;

use crate::body::{ResponseBody, poll_bytes};
use crate::joined::Joined;
use crate::store::TombstoneReason;

/// A response's body, as far as it was read.
pub(crate) enum Collected<B: Body> {
    /// To its end.
    Whole { data: Bytes, trailers: Option<HeaderMap> },
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
    let deadline = hint.exact().is_none().then(|| Instant::now() + STREAM_PATIENCE);
    // Boxed, since a body that turns out to be a stream has to be moved on to the client after it was polled.
    let mut body = Box::pin(body);
    let mut read = Read::default();
    loop {
        match next_frame(body.as_mut(), deadline).await {
            Next::Frame(frame) => read.push(frame),
            Next::End => {
                let (data, trailers) = read.into_whole();
                return Collected::Whole { data, trailers };
            }
            Next::Error(error) => {
                let (data, trailers) = read.into_whole();
                return Collected::Failed { body: ResponseBody::failed(data, trailers, error) };
            }
            Next::Late => return unfinished(TombstoneReason::Streamed, read, body),
        }
        if read.bytes > cap {
            return unfinished(TombstoneReason::TooLarge, read, body);
        }
    }
}

fn unfinished<B: Body>(reason: TombstoneReason, read: Read, rest: Pin<Box<B>>) -> Collected<B> {
    let (data, trailers) = read.into_whole();
    Collected::Unfinished { reason, body: ResponseBody::resumed(data, trailers, rest) }
}

enum Next<E> {
    Frame(Frame<Bytes>),
    End,
    Error(E),
    Late,
}

async fn next_frame<B: Body>(mut body: Pin<&mut B>, deadline: Option<Instant>) -> Next<B::Error> {
    let frame = std::future::poll_fn(|cx| poll_bytes(body.as_mut(), cx));
    let frame = match deadline {
        None => frame.await,
        // Streams have a timer, and no other body has room for it.
        Some(deadline) => match Box::pin(tokio::time::timeout_at(deadline, frame)).await {
            Ok(frame) => frame,
            Err(_) => return Next::Late,
        },
    };
    match frame {
        Some(Ok(frame)) => Next::Frame(frame),
        Some(Err(error)) => Next::Error(error),
        None => Next::End,
    }
}

/// What was read so far.
#[derive(Default)]
struct Read {
    data: Joined,
    bytes: usize,
    trailers: Option<HeaderMap>,
}

impl Read {
    fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => {
                self.bytes += data.len();
                self.data.push(data);
            }
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    fn into_whole(self) -> (Bytes, Option<HeaderMap>) {
        (self.data.finish(), self.trailers)
    }
}

/// How long a body of unknown length may take to end, from the headers on.
const STREAM_PATIENCE: Duration = Duration::from_secs(1);

/// The media type of server-sent events (HTML Living Standard, section 9.2).
const EVENT_STREAM: &[u8] = b"text/event-stream";
