//! While an attempt is being made, the code that it leads to can find it without having been handed it: a
//! second instance in the same chain of middlewares, and the redirect policy deep inside reqwest.
//!
//! A call inside a call is not the same as a second instance: a middleware that fetches a token makes a call of its
//! own, which is keyed, at random, and retried like any other. The two are told apart by the extensions, which a chain
//! of middlewares hands on from one to the next.

use std::cell::Cell;
use std::pin::Pin;
use std::ptr;

use http::Extensions;
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT: Current;
}

/// One attempt, while it is polled.
#[derive(Debug)]
pub(crate) struct Current {
    extensions: Place,
    redirected: Cell<bool>,
}

/// Where the extensions of an attempt are, and stay until it ends. It is compared and never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

impl Place {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self(ptr::from_ref(extensions).addr())
    }
}

/// An attempt that is the current one while it is polled.
pub(crate) type Around<F> = TaskLocalFuture<Current, F>;

/// Makes an attempt the current one while it is polled.
pub(crate) fn around<F: Future>(extensions: Place, attempt: F) -> Around<F> {
    CURRENT.scope(Current { extensions, redirected: Cell::new(false) }, attempt)
}

/// Whether the attempt, which has ended, was redirected.
pub(crate) fn was_redirected<F: Future>(attempt: Pin<&mut Around<F>>) -> bool {
    attempt.take_value().is_some_and(|current| current.redirected.get())
}

/// Whether these are the extensions of the current attempt.
pub(crate) fn is_within_attempt(extensions: &Extensions) -> bool {
    CURRENT.try_with(|current| current.extensions == Place::of(extensions)).unwrap_or(false)
}

/// Whether there is a current attempt.
pub(crate) fn is_attempt() -> bool {
    CURRENT.try_with(|_| ()).is_ok()
}

/// Takes note that the current attempt, if there is one, has been redirected.
pub(crate) fn followed_redirect() {
    // Without one, reqwest was asked without this middleware, and nobody wants to know.
    CURRENT.try_with(|current| current.redirected.set(true)).unwrap_or_default();
}
