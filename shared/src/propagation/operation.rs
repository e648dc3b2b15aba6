//! A call gets its key from an [`Operation`], which says what is particular to the call among all
//! those of its run.
//!
//! ```
//! use idempotency_shared::{IdempotencyKey, Propagation};
//!
//! let run = Propagation::builder("order:create", IdempotencyKey::random()).build();
//! for (i, _parcel) in ["books", "books"].iter().enumerate() {
//!     let key = run.operation("ship").with("order-4711").nth(i).key()?;
//!     // Send the call with it, and each retry of the call with the same value.
//! }
//! # Ok::<(), idempotency_shared::DerivedKeyReused>(())
//! ```

use std::fmt::{self, Debug, Display, Formatter};

use super::derivation::{self, Name, Version};
use super::{DerivedKeyReused, Propagation};
use crate::IdempotencyKey;

/// One call of a run, before it has its key.
///
/// It is not `Clone`, and [`key`](Self::key) consumes it: one call, one key.
#[must_use]
pub struct Operation {
    propagation: Propagation,
    pub(super) name: Name,
    pub(super) discriminators: Vec<String>,
    pub(super) nth: u64,
    version: Version,
}

impl Operation {
    pub(super) fn new(propagation: Propagation, name: Name) -> Self {
        Self { propagation, name, discriminators: Vec::new(), nth: 0, version: Version::V8 }
    }

    /// Tells this call from others of its name by what it is about, such as the id of an order.
    ///
    /// What counts is the text that `Display` writes, so it must be the same on every run: an id that
    /// the run itself makes up is not. Several are kept apart, and their order matters.
    pub fn with(mut self, discriminator: impl Display) -> Self {
        self.discriminators.push(discriminator.to_string());
        self
    }

    /// Tells this call from equal ones by its place among them. Without it, the place is 0.
    ///
    /// The place must come from the data, as an index into the order's items does, and not from which
    /// call happens to be made first.
    pub fn nth(mut self, nth: usize) -> Self {
        // No platform has a `usize` above 64 bits.
        self.nth = nth as u64;
        self
    }

    /// Writes the key as a UUID of version 4, for providers that accept nothing else.
    ///
    /// It claims to be random and is not. Apart from the version it is the same key, so an operation
    /// cannot have both.
    pub fn as_v4(mut self) -> Self {
        self.version = Version::V4;
        self
    }

    /// Gives the key away: the value for the first attempt of this call and for all its retries.
    ///
    /// # Errors
    ///
    /// When the run has given it away before.
    pub fn key(self) -> Result<IdempotencyKey, DerivedKeyReused> {
        let derived = derivation::derive(&self.propagation.run, &self);
        if self.propagation.given().insert(derived) {
            Ok(derived.key(self.version))
        } else {
            Err(DerivedKeyReused { name: self.name, discriminators: self.discriminators.len(), nth: self.nth })
        }
    }
}

impl Debug for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Discriminators may be about people.
        f.debug_struct("Operation")
            .field("name", &self.name)
            .field("discriminators", &self.discriminators.len())
            .field("nth", &self.nth)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Barrier;
    use std::thread;

    use http::Method;

    use super::*;

    fn run() -> Propagation {
        Propagation::builder("order:create", IdempotencyKey::new("order-4711").unwrap()).build()
    }

    /// Fails when `key` ignores what `insert` returns.
    #[test]
    fn second_use_is_an_error() {
        let run = run();
        let operations: [fn(&Propagation) -> Operation; 4] = [
            |run| run.operation("charge"),
            |run| run.operation("charge").with("order-1"),
            |run| run.operation("charge").nth(1),
            |run| run.ambient(&Method::POST, "https://pay.example", "/charges"),
        ];
        for operation in operations {
            assert!(operation(&run).key().is_ok());
            let error = operation(&run).key().unwrap_err();
            assert_eq!(error.name, operation(&run).name);
        }
    }

    /// Fails when `key` takes for the ordinal how many keys the run has given away.
    #[test]
    fn order_of_execution_is_no_part_of_a_key() {
        let keys = |names: [&'static str; 3]| {
            let run = run();
            names.map(|name| (name, run.operation(name).key().unwrap())).into_iter().collect::<HashMap<_, _>>()
        };
        assert_eq!(keys(["reserve", "charge", "ship"]), keys(["ship", "reserve", "charge"]));
    }

    /// Fails when `key` lets every version 4 pass.
    #[test]
    fn other_version_is_the_same_key() {
        let (run, another_run) = (run(), run());
        let v8 = run.operation("charge").key().unwrap();
        assert!(run.operation("charge").as_v4().key().is_err());

        let v4 = another_run.operation("charge").as_v4().key().unwrap();
        let differ = v8.as_str().bytes().zip(v4.as_str().bytes()).filter(|(a, b)| a != b).count();
        assert_eq!((differ, &v8.as_str()[14..15], &v4.as_str()[14..15]), (1, "8", "4"));
    }

    /// Fails when `key` asks `contains` first and inserts under a second lock.
    #[test]
    fn one_of_many_threads_gets_the_key() {
        const KEYS: usize = 5_000;
        let (run, start) = (run(), Barrier::new(4));
        let given: usize = thread::scope(|scope| {
            let race = || {
                start.wait();
                (0..KEYS).filter(|&nth| run.operation("charge").nth(nth).key().is_ok()).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(given, KEYS);
    }
}
