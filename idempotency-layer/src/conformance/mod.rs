//! The list of properties that every store keeps, to run on a store of your own.
//!
//! Each property is an `async fn` over a [`Harness`] that panics with what it saw when the store breaks the property.
//! It works on fresh random records, so that all of them can run at once on one server, beside whatever else is
//! stored there. [`conformance_tests!`](crate::conformance_tests) makes one test of each; [`properties`] lists them
//! by name; [`run`] checks them one after the other.
//!
//! What the list does not show: that the store is durable, survives a fail-over, or keeps its promises when it is cut
//! off from its server. It shows that the store decides rightly when it can decide.
//!
//! ```
//! use idempotency_layer::conformance::{self, MemoryHarness};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! conformance::run(&MemoryHarness::new()).await;
//! # });
//! ```

/// Asserts that a value matches a pattern, and shows the value when it does not.
macro_rules! assert_is {
    ($value:expr, $pattern:pat $(if $guard:expr)?, $($situation:tt)+) => {
        match $value {
            $pattern $(if $guard)? => {}
            other => panic!("{}: {other:?}", format_args!($($situation)+)),
        }
    };
}

mod harness;
mod key;
mod memory;
mod overlap;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt;

pub use self::harness::{Erased, Harness};
pub use self::memory::MemoryHarness;

/// One property of stores, by name.
pub struct Property<H> {
    name: &'static str,
    check: Check<H>,
}

type Check<H> = for<'a> fn(&'a H) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl<H: Harness> Property<H> {
    /// The name, which says what holds.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the property.
    ///
    /// # Panics
    ///
    /// When the store does not keep it.
    pub async fn check(&self, harness: &H) {
        (self.check)(harness).await;
    }
}

impl<H> fmt::Debug for Property<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Property").field(&self.name).finish()
    }
}

/// Checks every property, each of them even when one before it failed.
///
/// # Panics
///
/// When the store does not keep all of them; the message names those that it does not keep.
pub async fn run<H: Harness>(harness: &H) {
    let mut broken = Vec::new();
    for property in properties::<H>() {
        if AssertUnwindSafe(property.check(harness)).catch_unwind().await.is_err() {
            broken.push(property.name());
        }
    }
    assert!(broken.is_empty(), "the store does not keep: {}", broken.join(", "));
}

/// Makes the list three times over: as modules, as [`properties`] and as [`conformance_tests!`].
macro_rules! list {
    ($dollar:tt $( $(#[$doc:meta])* $module:ident { $( $property:ident, )+ } )+) => {
        $( $(#[$doc])* pub mod $module; )+

        /// The whole list, in the order in which a store is best built.
        #[must_use]
        pub fn properties<H: Harness>() -> Vec<Property<H>> {
            vec![$( $( Property {
                name: stringify!($property),
                check: |harness| Box::pin($module::$property(harness)),
            }, )+ )+]
        }

        /// Makes one test of each property of the [conformance list](crate::conformance).
        ///
        /// It takes an expression for the [`Harness`](crate::conformance::Harness), which is evaluated in each test
        /// and may contain `.await`. The tests are `tokio`'s; the features `macros` and `rt-multi-thread` are needed.
        ///
        /// ```
        /// mod memory {
        ///     use idempotency_layer::conformance::MemoryHarness;
        ///
        ///     idempotency_layer::conformance_tests!(MemoryHarness::new());
        /// }
        /// ```
        #[macro_export]
        macro_rules! conformance_tests {
            ($dollar harness:expr) => { $( $(
                #[::tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $property() {
                    $crate::conformance::$module::$property(&$dollar harness).await;
                }
            )+ )+ };
        }
    };
}

list! { $
    /// Who becomes the holder of a key.
    claims {
        one_of_many_overlapping_claimers_holds,
        keys_are_apart,
    }
}
