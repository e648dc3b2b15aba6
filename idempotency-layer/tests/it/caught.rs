//! How it is shown of a whole list that each of its properties can fail.

use idempotency_layer::conformance::{Harness, Property};

/// Names for each property of a list the one mutation that it has to catch, and makes a test of it.
macro_rules! mutants {
    (of $properties:ident on $harness:ident: $( $property:ident: $mutation:ident, )+) => {
        /// One way in which a store can be wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mutation {
            $( $mutation, )+
        }

        mod caught {
            $(
                // The clock of `tokio` stands still, so that what waits for a push that never comes waits no real time.
                #[tokio::test(start_paused = true)]
                async fn $property() {
                    let broken = super::$harness::broken(super::Mutation::$mutation);
                    $crate::caught::is_caught(super::$properties(), stringify!($property), broken).await;
                }
            )+
        }

        #[test]
        fn every_property_has_its_mutant() {
            let mutants = [$( stringify!($property) ),+];
            $crate::caught::each_has_one(&$properties::<$harness>(), &mutants);
        }
    };
}

pub(crate) use mutants;

/// Asserts that the property of this name fails on this store.
pub(crate) async fn is_caught<H: Harness>(properties: Vec<Property<H>>, name: &str, broken: H) {
    let property = properties
        .into_iter()
        .find(|property| property.name() == name)
        .unwrap_or_else(|| panic!("`{name}` is not on the list"));
    let trial = tokio::spawn(async move { property.check(&broken).await });
    assert!(trial.await.is_err_and(|error| error.is_panic()), "`{name}` holds on the store that is broken for it");
}

/// Asserts that there is one mutant of each property, and none beside.
pub(crate) fn each_has_one<H: Harness>(properties: &[Property<H>], mutants: &[&str]) {
    for property in properties {
        let name = property.name();
        assert_eq!(mutants.iter().filter(|mutant| **mutant == name).count(), 1, "mutants of `{name}`");
    }
    assert_eq!(mutants.len(), properties.len(), "a mutant is of a property that is not on the list");
}
