//! A request's body is read whole before its key is claimed, so that no claim is ever made for half a request.
//!
//! Reading ends early when the body breaks off, when its length is not the one that `content-length` announced, when
//! it is larger than the cap, or when the layer holds as many bytes as it may. In each case nothing has been claimed.
//!
//! Frames are joined as they come. A client can send a body in frames of one byte or of none, without end, and a frame
//! takes more room than that.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue};
use http_body::Body;
use idempotency_shared::Problem;

use crate::body::poll_bytes;
use crate::bound::{Bound, Share};
use crate::joined::Joined;

/// A body, and the right to hold so many bytes.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    /// Given back with the intake, when the run is over.
    _buffered: Option<Share>,
}

/// Reads a body of at most `cap` bytes, while `budget` has room for it.
pub(crate) async fn read<B: Body>(
    body: B,
    headers: &HeaderMap,
    cap: usize,
    budget: &Arc<Bound>,
) -> Result<Intake, Problem> {
    let too_large = || Problem::request_too_large(cap as u64);
    let announced = headers.get(CONTENT_LENGTH).and_then(announced_length);
    if announced.is_some_and(|length| length > cap as u64) || body.size_hint().lower() > cap as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let mut joined = Joined::default();
    let mut bytes = 0_usize;
    let mut trailers = None;
    let mut buffered: Option<Share> = None;
    while let Some(frame) = std::future::poll_fn(|cx| poll_bytes(body.as_mut(), cx)).await {
        let Ok(frame) = frame else { return Err(Problem::body_unreadable()) };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok().map(Box::new);
                continue;
            }
        };
        bytes = bytes.saturating_add(data.len());
        if bytes > cap {
            return Err(too_large());
        }
        let has_room = match &mut buffered {
            Some(buffered) => buffered.grow(data.len()),
            None => {
                buffered = budget.take(data.len());
                buffered.is_some()
            }
        };
        if !has_room {
            return Err(Problem::overloaded());
        }
        joined.push(data);
    }
    if announced.is_some_and(|length| length != bytes as u64) {
        return Err(Problem::body_unreadable());
    }
    Ok(Intake { body: joined.finish(), trailers, _buffered: buffered })
}

fn announced_length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full, StreamBody};
    use idempotency_shared::ProblemCode;

    use super::*;

    async fn read_chunks(
        chunks: &'static [&'static str],
        length: Option<u64>,
        budget: usize,
    ) -> Result<Bytes, ProblemCode> {
        let frames = chunks.iter().map(|chunk| {
            if *chunk == "!" { Err("broken") } else { Ok(http_body::Frame::data(Bytes::from_static(chunk.as_bytes()))) }
        });
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let headers = length.map(|length| (CONTENT_LENGTH, HeaderValue::from(length))).into_iter().collect();
        let bound = Bound::new(budget);
        let intake = read(body, &headers, 6, &bound).await;
        let held = intake.as_ref().map_or(0, |intake| intake.body.len());
        assert!(bound.take(budget - held).is_some(), "what is refused holds nothing");
        assert!(bound.take(budget - held + 1).is_none(), "what is taken holds its bytes");
        intake.map(|intake| intake.body).map_err(|problem| problem.code())
    }

    /// Fails when `read` does not compare with the cap what is announced or what has come, does not compare the two with
    /// each other, takes no share of the budget or no more for a second chunk, or takes a body that breaks off for one that ends.
    #[tokio::test]
    async fn only_whole_bodies_within_bounds_are_taken() {
        assert_eq!(read_chunks(&["ab", "cdef"], None, 9).await, Ok(Bytes::from_static(b"abcdef")));
        assert_eq!(read_chunks(&[], Some(0), 0).await, Ok(Bytes::new()));
        assert_eq!(read_chunks(&["ab", "!"], None, 9).await, Err(ProblemCode::BodyUnreadable));
        assert_eq!(read_chunks(&["ab"], Some(3), 9).await, Err(ProblemCode::BodyUnreadable));
        assert_eq!(read_chunks(&["abc"], Some(2), 9).await, Err(ProblemCode::BodyUnreadable));
        assert_eq!(read_chunks(&["abcdef", "g"], None, 9).await, Err(ProblemCode::RequestTooLarge));
        assert_eq!(read_chunks(&["a"], Some(7), 9).await, Err(ProblemCode::RequestTooLarge));
        assert_eq!(read_chunks(&["abc", "def"], None, 5).await, Err(ProblemCode::Overloaded));
    }

    /// Fails when frames are collected before they are joined, as empty ones could be without end.
    #[tokio::test]
    async fn a_body_in_many_frames_takes_no_more_than_its_bytes() {
        struct Frame {
            _counted: Arc<()>,
        }
        impl AsRef<[u8]> for Frame {
            fn as_ref(&self) -> &[u8] {
                b"a"
            }
        }
        let alive = Arc::new(());
        let counted = Arc::clone(&alive);
        let frames = (0..1000).map(move |at| {
            assert!(Arc::strong_count(&counted) < 5, "frame {at}: all before it are still held");
            let frame = Bytes::from_owner(Frame { _counted: Arc::clone(&counted) });
            Ok::<_, Infallible>(http_body::Frame::data(if at % 2 == 0 { frame } else { frame.slice(..0) }))
        });
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let intake = read(body, &HeaderMap::new(), 1000, &Bound::new(1000)).await.expect("a body");
        assert_eq!(intake.body, vec![b'a'; 500]);
    }

    /// Fails when `read` does not ask the body itself for its size.
    #[tokio::test]
    async fn a_body_that_says_it_is_too_large_is_not_read() {
        struct TooLarge;
        impl Body for TooLarge {
            type Data = Bytes;
            type Error = Infallible;

            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                unreachable!("it is not read")
            }

            fn size_hint(&self) -> http_body::SizeHint {
                http_body::SizeHint::with_exact(7)
            }
        }
        let refused = read(TooLarge, &HeaderMap::new(), 6, &Bound::new(9)).await;
        assert_eq!(refused.expect_err("a refusal").code(), ProblemCode::RequestTooLarge);
    }

    /// Fails when `read` does not keep the trailers.
    #[tokio::test]
    async fn trailers_are_kept() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("1"))]);
        let sent = trailers.clone();
        let body = Full::new(Bytes::from_static(b"a")).with_trailers(async move { Some(Ok(sent)) });
        let intake = read(body, &HeaderMap::new(), 6, &Bound::new(9)).await.expect("a body");
        assert_eq!(intake.trailers.as_deref(), Some(&trailers));
    }
}
