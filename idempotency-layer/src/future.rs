//! A call comes to the inner service's own future where the request passes, to an answer at once, or to a keyed run.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use crate::adopted::Adopted;
use crate::body::ResponseBody;

pin_project! {
    /// What a call of [`Idempotency`](crate::Idempotency) comes to.
    ///
    /// Dropping it before a keyed request's body is read leaves nothing behind. Dropping it later stops nothing: the
    /// run goes on, and its record is written.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B: Body, E> {
        #[pin]
        inner: Kind<F, B, E>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, B: Body, E> {
        Passed { #[pin] future: F },
        Answered { response: Option<Response<ResponseBody<B>>> },
        Keyed { #[pin] future: Adopted<Answered<B, E>> },
    }
}

type Answered<B, E> = Result<Response<ResponseBody<B>>, E>;

impl<F, B: Body, E> ResponseFuture<F, B, E> {
    pub(crate) fn passed(future: F) -> Self {
        Self { inner: Kind::Passed { future } }
    }

    pub(crate) fn answered(response: Response<ResponseBody<B>>) -> Self {
        Self { inner: Kind::Answered { response: Some(response) } }
    }

    pub(crate) fn keyed(future: Adopted<Answered<B, E>>) -> Self {
        Self { inner: Kind::Keyed { future } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().inner.project() {
            KindProj::Passed { future } => {
                future.poll(cx).map(|response| response.map(|response| response.map(ResponseBody::handler)))
            }
            KindProj::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => unreachable!("a future is not polled after its end"),
            },
            KindProj::Keyed { future } => future.poll(cx),
        }
    }
}

impl<F, B: Body, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
