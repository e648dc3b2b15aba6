//! A future that goes on without the one who awaited it.
//!
//! A client that disconnects drops the future that serves it. From the moment its claim is sent until its run is a task
//! of its own, that must not stop the operation: the claim may have been made, and a run that is cut in half is worse than
//! one that nobody waits for. Before, nothing has happened, and afterwards nothing here is needed.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs a future in place while it is polled. Dropped while it is [claiming](Claiming), it goes on as a task of its own.
pub(crate) struct Adopted<T> {
    future: Option<Pin<Box<dyn GoesOn<Output = T>>>>,
    /// As the future has said when it was last polled.
    is_claiming: bool,
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

/// By which the future says whether it must be brought to its end: asked when it is dropped.
///
/// What it says is in a cell of the thread that polls it, which holds the word of that one future meanwhile: shared memory
/// for one flag would be an allocation for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claiming(());

thread_local! {
    static CLAIMING: Cell<bool> = const { Cell::new(false) };
}

impl Claiming {
    pub(crate) fn begin(self) {
        CLAIMING.set(true);
    }

    pub(crate) fn end(self) {
        CLAIMING.set(false);
    }
}

/// Gives the cell back to the future outside, also when the one inside panics.
struct Restored(bool);

impl Drop for Restored {
    fn drop(&mut self) {
        CLAIMING.set(self.0);
    }
}

impl<T> Adopted<T> {
    pub(crate) fn new<F>(future: impl FnOnce(Claiming) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        Self { future: Some(Box::pin(future(Claiming(())))), is_claiming: false }
    }
}

impl<T> Future for Adopted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut future) = self.future.take() else {
            unreachable!("a future is not polled after its end");
        };
        // One that panics is not put back: it cannot go on.
        let polled = {
            let _outside = Restored(CLAIMING.replace(self.is_claiming));
            let polled = future.as_mut().poll(cx);
            self.is_claiming = CLAIMING.get();
            polled
        };
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<T> Drop for Adopted<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        if !self.is_claiming {
            return;
        }
        // Without a runtime the process is on its way out, and the lease lapses.
        if let Ok(runtime) = Handle::try_current() {
            future.go_on(&runtime);
        }
    }
}
