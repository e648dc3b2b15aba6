//! A future that goes on without the one who awaited it.
//!
//! A client that disconnects drops the future that serves it. From the moment its claim is sent that must not stop the
//! operation: the claim may have been made, and a run that is cut in half is worse than one that nobody waits for.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs a future to its end: in place while it is polled, as a task of its own once it is dropped.
pub(crate) struct Adopted<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Adopted<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)) }
    }
}

impl<T: Send + 'static> Future for Adopted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(future) = self.future.as_mut() else {
            unreachable!("a future is not polled after its end");
        };
        let output = std::task::ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for Adopted<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        // Without a runtime the process is on its way out, and the lease lapses.
        if let (Ok(runtime), false) = (Handle::try_current(), std::thread::panicking()) {
            runtime.spawn(async move { drop(future.await) });
        }
    }
}
