//! A call deep inside a handler finds the [`Propagation`] of its run without having been handed it:
//! the task that runs the handler carries it.
//!
//! - [`around`](Propagation::around) makes it the current one while a future is polled, and then only:
//!   not before, not between two polls, and not in what the future gives to `tokio::spawn`.
//! - [`spawn`](Propagation::spawn) is `tokio::spawn` with it.
//! - An inner one hides an outer one until it ends.
//!
//! A thread of `spawn_blocking` has none. Hand it a clone.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use idempotency_shared::{IdempotencyKey, Propagation};
//!
//! let run = Propagation::builder("order:create", IdempotencyKey::random()).build();
//! let scope = || Propagation::current().map(|current| current.scope().to_owned());
//!
//! assert_eq!(run.around(async { scope() }).await.as_deref(), Some("order:create"));
//! assert_eq!(run.around(async { tokio::spawn(async move { scope() }).await }).await?, None);
//! assert_eq!(run.spawn(async move { scope() }).await?.as_deref(), Some("order:create"));
//! assert_eq!(scope(), None);
//! # Ok::<(), tokio::task::JoinError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::{self, Debug, Formatter};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;
use tokio::task::futures::TaskLocalFuture;

use super::Propagation;

tokio::task_local! {
    static CURRENT: Propagation;
}

impl Propagation {
    /// The one that the nearest [`around`](Self::around) made the current one; `None` outside of any.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Runs `future` with this as the [`current`](Self::current) propagation.
    pub fn around<F>(&self, future: F) -> Around<F>
    where
        F: Future,
    {
        Around { future: CURRENT.scope(self.clone(), future) }
    }

    /// Runs `future` in a task of its own with this as the [`current`](Self::current) propagation.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, as `tokio::spawn` does.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(self.around(future))
    }
}

pin_project! {
    /// The future of [`Propagation::around`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Around<F> {
        #[pin]
        future: TaskLocalFuture<Propagation, F>,
    }
}

impl<F> Future for Around<F>
where
    F: Future,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().future.poll(cx)
    }
}

impl<F> Debug for Around<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Around").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IdempotencyKey;

    fn run(scope: &str) -> Propagation {
        Propagation::builder(scope, IdempotencyKey::new("order-4711").unwrap()).build()
    }

    fn current() -> Option<String> {
        Propagation::current().map(|current| current.scope().to_owned())
    }

    /// Fails when `around` keeps the propagation that is current already.
    #[tokio::test]
    async fn inner_hides_outer_until_it_ends() {
        let outer = run("outer");
        let seen = outer
            .around(async {
                let before = current();
                let inside = run("inner").around(async { current() }).await;
                [before, inside, current()]
            })
            .await;
        assert_eq!(seen.map(Option::unwrap), ["outer", "inner", "outer"]);
        assert_eq!(current(), None);
    }

    /// Fails when `around` sets the current propagation for the thread rather than for the future.
    #[tokio::test]
    async fn tasks_of_one_thread_do_not_see_each_other() {
        let task = |scope: &'static str| {
            run(scope).spawn(async move {
                tokio::task::yield_now().await;
                current()
            })
        };
        let tasks = [task("a"), task("b")];
        for (task, scope) in tasks.into_iter().zip(["a", "b"]) {
            assert_eq!(task.await.unwrap().as_deref(), Some(scope));
        }
    }

    /// Fails when `spawn` leaves `around` out.
    #[tokio::test]
    async fn spawned_task_belongs_to_the_run() {
        let run = run("order:create");
        let key = run.spawn(async { Propagation::current().unwrap().operation("charge").key() }).await.unwrap();
        assert!(key.is_ok());
        assert!(run.operation("charge").key().is_err());
    }

    /// Does not compile when `Around` loses `Send`.
    #[test]
    fn around_a_send_future_is_send() {
        fn assert_send(_: impl Send) {}
        assert_send(run("order:create").around(async {}));
    }
}
