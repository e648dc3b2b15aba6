//! What the handler reads and what the client gets are bodies of the layer's own, around any body there may be.
//!
//! Both pass a foreign body through untouched, without an allocation, where the layer has nothing to do with the
//! request. Data frames become [`Bytes`]; for bodies whose data is `Bytes` already that is free.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a request inside the layer: the client's own, or the one that the layer has read whole.
    pub struct RequestBody<B> {
        #[pin]
        inner: RequestKind<B>,
    }
}

pin_project! {
    #[project = RequestProj]
    enum RequestKind<B> {
        Client { #[pin] body: B },
        Read { whole: Whole },
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn client(body: B) -> Self {
        Self { inner: RequestKind::Client { body } }
    }

    pub(crate) fn read(data: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { inner: RequestKind::Read { whole: Whole::new(data, trailers) } }
    }
}

impl<B: Body> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            RequestProj::Client { body } => poll_bytes(body, cx),
            RequestProj::Read { whole } => Poll::Ready(whole.next().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            RequestKind::Client { body } => body.is_end_stream(),
            RequestKind::Read { whole } => whole.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            RequestKind::Client { body } => body.size_hint(),
            RequestKind::Read { whole } => whole.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a response outside the layer: the handler's own, one that was read and recorded, or one of ours.
    pub struct ResponseBody<B: Body> {
        #[pin]
        inner: ResponseKind<B>,
    }
}

pin_project! {
    #[project = ResponseProj]
    enum ResponseKind<B: Body> {
        Handler { #[pin] body: B },
        Whole { whole: Whole },
        // What was read before the layer stopped reading, then the rest.
        Resumed { read: Whole, rest: Pin<Box<B>> },
        // What was read before the body failed, then the failure.
        Failed { read: Whole, error: Option<B::Error> },
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn handler(body: B) -> Self {
        Self { inner: ResponseKind::Handler { body } }
    }

    pub(crate) fn whole(data: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { inner: ResponseKind::Whole { whole: Whole::new(data, trailers) } }
    }

    pub(crate) fn resumed(data: Bytes, trailers: Option<Box<HeaderMap>>, rest: Pin<Box<B>>) -> Self {
        Self { inner: ResponseKind::Resumed { read: Whole::new(data, trailers), rest } }
    }

    pub(crate) fn failed(data: Bytes, trailers: Option<Box<HeaderMap>>, error: B::Error) -> Self {
        Self { inner: ResponseKind::Failed { read: Whole::new(data, trailers), error: Some(error) } }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            ResponseProj::Handler { body } => poll_bytes(body, cx),
            ResponseProj::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ResponseProj::Resumed { read, rest } => match read.next() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => poll_bytes(rest.as_mut(), cx),
            },
            ResponseProj::Failed { read, error } => match read.next() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => Poll::Ready(error.take().map(Err)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            ResponseKind::Handler { body } => body.is_end_stream(),
            ResponseKind::Whole { whole } => whole.is_end(),
            ResponseKind::Resumed { read, rest } => read.is_end() && rest.is_end_stream(),
            ResponseKind::Failed { read, error } => read.is_end() && error.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            ResponseKind::Handler { body } => body.size_hint(),
            ResponseKind::Whole { whole } => whole.size_hint(),
            ResponseKind::Resumed { read, rest } => {
                let read = read.data.len() as u64;
                let rest = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
                hint
            }
            // Without an upper bound, so that nobody promises a length that will not come.
            ResponseKind::Failed { .. } => SizeHint::new(),
        }
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// A body that is all there: one data frame unless it is empty, then trailers if it has any.
#[derive(Debug)]
struct Whole {
    data: Bytes,
    /// In a box, as wherever a message is on its way: hardly any has trailers, and all are moved with the room for them.
    trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    fn new(data: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { data, trailers }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        if !self.data.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.data)));
        }
        self.trailers.take().map(|trailers| Frame::trailers(*trailers))
    }

    fn is_end(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// Exact unless trailers follow: HTTP/1.1 has room for them only in a message without a length.
    fn size_hint(&self) -> SizeHint {
        let bytes = self.data.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(bytes);
        if self.trailers.is_none() {
            hint.set_exact(bytes);
        }
        hint
    }
}

/// Polls any body for frames of [`Bytes`].
pub(crate) fn poll_bytes<B: Body>(
    body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    let frame = ready!(body.poll_frame(cx));
    Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))))
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// Fails when `Whole::next` sends an empty data frame or drops trailers, the size hint shuts them out, or `is_end`
    /// forgets them.
    #[tokio::test]
    async fn a_whole_body_is_its_data_and_its_trailers() {
        let mut empty = ResponseBody::<Full<Bytes>>::whole(Bytes::new(), None);
        assert!(empty.is_end_stream());
        assert!(empty.frame().await.is_none());

        let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("1"))]);
        let body = ResponseBody::<Full<Bytes>>::whole(Bytes::from_static(b"abc"), Some(Box::new(trailers.clone())));
        assert_eq!((body.size_hint().lower(), body.size_hint().exact()), (3, None));
        let collected = body.collect().await.expect("infallible");
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "abc");
        // A server that is told of the end asks for no trailers.
        assert!(!ResponseBody::<Full<Bytes>>::whole(Bytes::new(), Some(Box::new(trailers))).is_end_stream());
    }

    /// Fails when `Resumed` skips what was read, counts only the rest, or is at its end when only the rest is.
    #[tokio::test]
    async fn a_resumed_body_is_what_was_read_and_the_rest() {
        let read = Bytes::from_static(b"ab");
        let body = ResponseBody::resumed(read.clone(), None, Box::pin(Full::new(Bytes::from_static(b"cd"))));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.expect("infallible").to_bytes(), "abcd");

        assert!(!ResponseBody::resumed(read, None, Box::pin(Full::new(Bytes::new()))).is_end_stream());
    }

    /// Fails when `Failed` ends without its error, says that it is at its end before it, or promises a length.
    #[tokio::test]
    async fn a_failed_body_fails_after_what_was_read() {
        type Failing = http_body_util::combinators::UnsyncBoxBody<Bytes, &'static str>;
        let mut body = ResponseBody::<Failing>::failed(Bytes::from_static(b"ab"), None, "broken");
        assert_eq!(body.size_hint().upper(), None);
        let first = body.frame().await.expect("a frame").expect("data");
        assert_eq!(first.into_data().expect("data"), "ab");
        assert!(!body.is_end_stream());
        assert_eq!(body.frame().await.expect("an error").expect_err("an error"), "broken");
        assert!(body.frame().await.is_none());
    }

    /// Does not compile when a body holds anything of ours that is not `Send`, such as a raw pointer in `Whole`.
    #[test]
    fn bodies_are_send_when_theirs_are() {
        fn is_send<T: Send>() {}
        is_send::<RequestBody<Full<Bytes>>>();
        is_send::<ResponseBody<Full<Bytes>>>();
    }
}
