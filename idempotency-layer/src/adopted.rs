//! A future that goes on without the one who awaited it.
//!
//! A client that disconnects drops the future that serves it. From the moment its claim is sent until its run is a task
//! of its own, that must not stop the operation: the claim may have been made, and a run that is cut in half is worse than
//! one that nobody waits for. Before, nothing has happened, and afterwards nothing here is needed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs a future in place while it is polled. Dropped while it is [claiming](Claiming), it goes on as a task of its own.
pub(crate) struct Adopted<T> {
    future: Option<Pin<Box<dyn GoesOn<Output = T>>>>,
    claiming: Claiming,
}

/// A future that can become a task of its own.
trait GoesOn: Future + Send {
    fn go_on(self: Pin<Box<Self>>, runtime: &Handle);
}

impl<F> GoesOn for F
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn go_on(self: Pin<Box<Self>>, runtime: &Handle) {
        // Nobody is left to be answered.
        runtime.spawn(async move { drop(self.await) });
    }
}

/// Whether the future must be brought to its end. Told by the future, asked when it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claiming(Arc<AtomicBool>);

impl Claiming {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<T> Adopted<T> {
    pub(crate) fn new<F>(future: impl FnOnce(Claiming) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        let claiming = Claiming::default();
        Self { future: Some(Box::pin(future(claiming.clone()))), claiming }
    }
}

impl<T> Future for Adopted<T> {
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

impl<T> Drop for Adopted<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        if !self.claiming.0.load(Ordering::Relaxed) || std::thread::panicking() {
            return;
        }
        // Without a runtime the process is on its way out, and the lease lapses.
        if let Ok(runtime) = Handle::try_current() {
            future.go_on(&runtime);
        }
    }
}
