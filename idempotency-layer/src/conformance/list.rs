//! A list of properties, written once and made into what runs it: a function that lists them, and a macro of tests.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures_util::FutureExt;

use super::Harness;

/// One property of stores, by name.
pub struct Property<H> {
    pub(super) name: &'static str,
    pub(super) check: Check<H>,
}

pub(super) type Check<H> = for<'a> fn(&'a H) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

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

/// Checks each of these properties, also when one before it failed, and panics with the names of those that did.
pub(super) async fn check_all<H: Harness>(properties: Vec<Property<H>>, harness: &H) {
    let mut broken = Vec::new();
    for property in properties {
        if AssertUnwindSafe(property.check(harness)).catch_unwind().await.is_err() {
            broken.push(property.name());
        }
    }
    assert!(broken.is_empty(), "the store does not keep: {}", broken.join(", "));
}

/// Makes a list twice over: as a function, and as a macro that makes a test of each property.
///
/// The modules of the properties are where the list is; the macro finds them by the path `in` which it is told.
macro_rules! list {
    (
        $dollar:tt
        $( #[$of_function:meta] )*
        fn $properties:ident<$harness:ident>;
        $( #[$of_macro:meta] )*
        macro $tests:ident in $( $at:ident )::+;
        $( $module:ident { $( $property:ident, )+ } )+
    ) => {
        $( #[$of_function] )*
        #[must_use]
        pub fn $properties<H: $harness>() -> Vec<Property<H>> {
            vec![$( $( Property {
                name: stringify!($property),
                check: |harness| Box::pin($module::$property(harness)),
            }, )+ )+]
        }

        $( #[$of_macro] )*
        #[macro_export]
        macro_rules! $tests {
            ($dollar harness:expr) => {
                // Named after the macro, so that two lists in one module do not meet.
                use $crate $( ::$at )+ as $tests;

                $( $(
                    #[::tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $property() {
                        $tests::$module::$property(&$dollar harness).await;
                    }
                )+ )+
            };
        }
    };
}
