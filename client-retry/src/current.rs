//! While a call is being made, the code that it leads to can find it without having been handed it: a
//! second instance in the same chain of middlewares, and the redirect policy deep inside reqwest.
//!
//! A call inside a call is not the same as a second instance: a middleware that fetches a token makes a call of
//! its own, which is keyed and retried like any other. The two are told apart by the extensions, which a chain
//! of middlewares hands on from one to the next.

use std::cell::Cell;
use std::ptr;

use http::Extensions;

tokio::task_local! {
    static CURRENT: Current;
}

/// One call, while it is polled.
#[derive(Debug, Default)]
struct Current {
    /// Where the extensions of its attempt are. It is compared and never followed.
    extensions: Cell<usize>,
    redirected: Cell<bool>,
}

/// Makes a call the current one while `call` is polled.
pub(crate) async fn around<F: Future>(call: F) -> F::Output {
    CURRENT.scope(Current::default(), call).await
}

/// Takes note that the current call begins an attempt with these extensions.
///
/// They stay where they are until the attempt ends.
pub(crate) fn begin_attempt(extensions: &Extensions) {
    CURRENT.with(|current| {
        current.extensions.set(address(extensions));
        current.redirected.set(false);
    });
}

/// Whether these are the extensions of the current call's attempt.
pub(crate) fn is_within_attempt(extensions: &Extensions) -> bool {
    CURRENT.try_with(|current| current.extensions.get() == address(extensions)).unwrap_or(false)
}

/// Takes note that the attempt of the current call, if there is one, has been redirected.
pub(crate) fn followed_redirect() {
    // Without one, reqwest was asked without this middleware, and nobody wants to know.
    CURRENT.try_with(|current| current.redirected.set(true)).unwrap_or_default();
}

/// Whether the attempt of the current call has been redirected.
pub(crate) fn was_redirected() -> bool {
    CURRENT.with(|current| current.redirected.get())
}

fn address(extensions: &Extensions) -> usize {
    ptr::from_ref(extensions).addr()
}
