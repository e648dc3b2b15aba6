//! A request that arrives with a key can hand it down: each call that its run makes gets a key of its
//! own, the same on every run, so that a run that starts again repeats its calls under the keys it
//! used before.
//!
//! - A [`Propagation`] holds what arrived: the scope, the principal, the parent key, which attempt
//!   this is, and until when an answer is of use. Clones belong to the same run.
//! - [`operation`](Propagation::operation) names a call by what it does and
//!   [`ambient`](Propagation::ambient) by where it goes. The [`Operation`] that they return gives
//!   away the derived key.
//! - A derived key depends on scope, principal, parent key, operation, discriminators and ordinal,
//!   and on nothing else: not on the attempt, the body, the process or the order of execution.
//! - Two operations that are not told apart are an error at the second one, before anything is sent
//!   ([`DerivedKeyReused`]). An ordinal that counted them silently would swap their keys whenever
//!   two runs execute them in different order.
//! - The parent key itself never leaves the service: what is sent on is one-way, and `Debug` shows of
//!   it what [`IdempotencyKey`]'s own does.
//!
//! With the feature `tokio` a run's task carries its `Propagation`, so that calls deep inside find it
//! (`Propagation::current`); with `axum` it is an extractor.
//!
//! What is known of a run ends with it. The next attempt has a `Propagation` of its own, which knows
//! nothing of the keys that this one gave away, and derives the same ones.
//!
//! # Computing a derived key in another language
//!
//! A *number* has 8 bytes, the most significant first. A *text* is the number of its bytes, and then
//! the bytes, in UTF-8. A *list* is the number of its texts, and then the texts. The message is
//!
//! | # | item | holds |
//! |---|---|---|
//! | 1 | text | the domain, `idempotency derived key v1` |
//! | 2 | text | the scope |
//! | 3 | list | the principal, or no text where there is none |
//! | 4 | text | the parent key, without quotes and escapes |
//! | 5 | list | the name of the operation; or the method, the origin and the path of an ambient call |
//! | 6 | list | the discriminators, in the order in which they were added |
//! | 7 | number | the ordinal, 0 where none is set |
//!
//! It goes through HMAC-SHA256 (RFC 2104) under the configured [`DerivationSecret`], or under the
//! domain where none is configured. The first 16 bytes become a UUID of version 8 (RFC 9562, section
//! 5.8), or of version 4 where [`as_v4`](Operation::as_v4) asks for it, which means that the six bits
//! of version and variant are overwritten. The key is its text of 36 characters in lower case.
//!
//! `testdata/derive.py` is that in Python, and `testdata/derived-keys.json` has examples.
//!
//! ```
//! use idempotency_shared::{IdempotencyKey, Propagation};
//!
//! let arrived = IdempotencyKey::new("order-4711")?;
//! let run = || Propagation::builder("order:create", arrived.clone()).principal("alice").build();
//!
//! let first = run();
//! let charge = first.operation("charge").with(4711).key()?;
//! assert_eq!(charge.as_str(), "5c44bbdc-df17-8047-8a89-397dd078d220");
//! assert_ne!(first.operation("charge").with(4712).key()?, charge);
//!
//! // Neither a slip in one run nor the run that follows a crash makes a second charge.
//! assert!(first.operation("charge").with(4711).key().is_err());
//! assert_eq!(run().operation("charge").with(4711).key()?, charge);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
#[cfg(feature = "tokio")]
mod current;
mod derivation;
#[cfg(feature = "axum")]
mod extract;
mod operation;
mod reused;
mod secret;

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::num::NonZeroU32;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::Method;

use self::derivation::{Derived, Name};
use crate::IdempotencyKey;

pub use self::builder::PropagationBuilder;
#[cfg(feature = "tokio")]
pub use self::current::Around;
#[cfg(feature = "axum")]
pub use self::extract::MissingPropagation;
pub use self::operation::Operation;
pub use self::reused::DerivedKeyReused;
pub use self::secret::{DerivationSecret, DerivationSecretError};

/// What one run of an inbound request hands to the calls it makes.
///
/// The [module docs](crate::propagation) state the rules.
#[derive(Clone)]
pub struct Propagation {
    run: Arc<Run>,
}

/// What the clones of one [`Propagation`] share.
struct Run {
    scope: Arc<str>,
    principal: Option<Box<str>>,
    key: IdempotencyKey,
    attempt: NonZeroU32,
    deadline: Option<Instant>,
    secret: Option<DerivationSecret>,
    /// Which keys this run has given away: 16 bytes for each call that it makes.
    given: Mutex<HashSet<Derived>>,
}

impl Propagation {
    /// Begins the description of a run: `key` is what the request arrived with, and means something
    /// within `scope` only.
    pub fn builder(scope: impl Into<Arc<str>>, key: IdempotencyKey) -> PropagationBuilder {
        PropagationBuilder::new(scope.into(), key)
    }

    /// The call that does `name`, such as `charge`, within this run.
    ///
    /// The name is part of the derived key. It stays when code is moved or renamed.
    pub fn operation(&self, name: &str) -> Operation {
        Operation::new(self.clone(), Name::Given(Box::from(name)))
    }

    /// The call that has no name and is known by where it goes.
    ///
    /// `origin` is the ASCII serialization of the origin (RFC 6454, section 6.2), as `Url::origin`
    /// writes it, and `path` is the path without its query: whoever spells them in another way
    /// derives another key. The body is no part of it, for a run that starts again may write it with
    /// another timestamp. The key is never that of a named operation.
    pub fn ambient(&self, method: &Method, origin: &str, path: &str) -> Operation {
        let name = Name::Ambient { method: method.clone(), origin: Box::from(origin), path: Box::from(path) };
        Operation::new(self.clone(), name)
    }

    /// Whether this run, in any of its clones, has given a derived key away.
    ///
    /// A key that was given away may have been used, whatever became of the call. Whoever answers
    /// such a run cannot treat it as one that did nothing.
    #[must_use]
    pub fn has_given_key(&self) -> bool {
        !self.given().is_empty()
    }

    /// Whether this run has given a derived key away, or still can without whoever asks: another clone
    /// is alive, in a task that the run left behind or in an [`Operation`].
    ///
    /// `false` is final once the asker gives its own clone to nobody any more. Then no call of the run
    /// had a key, and none ever will.
    #[must_use]
    pub fn may_have_given_key(&self) -> bool {
        // In this order: of a clone that gives a key and goes meanwhile, one of the two knows.
        if Arc::strong_count(&self.run) > 1 {
            return true;
        }
        // The count is read without one. With it, what a clone did before it went has happened before the lock is taken.
        fence(Ordering::Acquire);
        self.has_given_key()
    }

    /// Whether both are of one run: clones of each other.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }

    /// Within what the parent key means something.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.run.scope
    }

    /// Whose parent key it is. `None` is nobody, which is not the principal with the empty name.
    #[must_use]
    pub fn principal(&self) -> Option<&str> {
        self.run.principal.as_deref()
    }

    /// The key that the request arrived with, for storing it with work that outlives the run.
    ///
    /// It is not for calls to others: whoever gets it could ask this service for its caller's answer.
    #[must_use]
    pub fn parent_key(&self) -> &IdempotencyKey {
        &self.run.key
    }

    /// Which run of the parent key this is; the first is 1.
    #[must_use]
    pub fn attempt(&self) -> NonZeroU32 {
        self.run.attempt
    }

    /// Until when an answer is of use to the caller, by this process's monotonic clock.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.run.deadline
    }

    /// An insertion cannot stop half way, so what a panicking thread left behind is whole.
    fn given(&self) -> MutexGuard<'_, HashSet<Derived>> {
        self.run.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debug for Propagation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A principal is a person's name or worse.
        f.debug_struct("Propagation")
            .field("scope", &self.run.scope)
            .field("key", &self.run.key)
            .field("attempt", &self.run.attempt)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn run() -> Propagation {
        Propagation::builder("order:create", IdempotencyKey::new("a-key-that-nobody-may-see").unwrap())
            .principal("alice@example.org")
            .build()
    }

    /// Fails when `has_given_key` loses its `!`, or each clone has a `given` of its own.
    #[test]
    fn clones_share_what_was_given_away() {
        let run = run();
        let clone = run.clone();
        assert!(!run.has_given_key());
        assert!(clone.operation("charge").key().is_ok());
        assert!(run.has_given_key());
        assert!(run.operation("charge").key().is_err());
    }

    /// Fails when `is_same_run` compares keys.
    #[test]
    fn another_attempt_is_another_run() {
        let run = run();
        assert!(run.is_same_run(&run.clone()));
        assert!(!run.is_same_run(&self::run()));
    }

    /// Fails when `operation` inserts into `given`, rather than `Operation::key`.
    #[test]
    fn operation_that_asks_for_no_key_was_not_given_one() {
        let run = run();
        drop(run.operation("charge"));
        assert!(!run.has_given_key());
    }

    /// Fails when `may_have_given_key` leaves out either question.
    #[test]
    fn run_may_give_keys_as_long_as_somebody_else_has_it() {
        let run = run();
        assert!(!run.may_have_given_key());
        let clone = run.clone();
        assert!(run.may_have_given_key());
        drop(clone);
        let operation = run.operation("charge");
        assert!(run.may_have_given_key());
        drop(operation);
        assert!(!run.may_have_given_key());
        assert!(run.operation("charge").key().is_ok());
        assert!(run.may_have_given_key());
    }

    /// Fails when `may_have_given_key` asks `has_given_key` first.
    #[test]
    fn clone_that_gives_a_key_and_goes_is_not_missed() {
        const RUNS: usize = 50_000;
        let runs: Vec<_> = (0..RUNS).map(|_| run()).collect();
        let clones: Vec<_> = runs.iter().map(Propagation::clone).collect();
        let reached = AtomicUsize::new(0);
        thread::scope(|scope| {
            // More than there are cores, so that some are stopped between the two questions.
            for _ in 0..8 {
                scope.spawn(|| {
                    while let Some(run) = runs.get(reached.load(Ordering::SeqCst)) {
                        assert!(run.may_have_given_key());
                    }
                });
            }
            for clone in clones {
                assert!(clone.operation("charge").key().is_ok());
                drop(clone);
                reached.fetch_add(1, Ordering::SeqCst);
            }
        });
    }

    /// Fails when `derive` adds the attempt to the message, or whether there is a deadline.
    #[test]
    fn later_attempt_with_another_deadline_derives_the_same_key() {
        let key = IdempotencyKey::random();
        let first = Propagation::builder("order:create", key.clone()).build();
        let attempt = NonZeroU32::new(2).unwrap();
        let second = Propagation::builder("order:create", key).attempt(attempt).deadline(Instant::now()).build();
        assert_eq!(first.operation("charge").key().unwrap(), second.operation("charge").key().unwrap());
    }

    /// Fails when `Debug` prints `key.as_str()`, or the principal.
    #[test]
    fn debug_shows_neither_the_key_nor_the_principal() {
        let run = run();
        let shown = format!("{run:?} {:?}", run.operation("charge").with("card-4242"));
        for hidden in ["nobody", "alice", "4242"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
        assert!(shown.contains("IdempotencyKey(\"a-key-th\"…)"), "{shown}");
    }

    /// Fails when `given` returns the error of a poisoned lock instead of the set.
    #[test]
    fn panic_of_one_call_does_not_stop_the_others() {
        let run = run();
        let clone = run.clone();
        let panicked = thread::spawn(move || {
            let _given = clone.given();
            panic!("while the lock is held");
        });
        assert!(panicked.join().is_err());
        assert!(run.operation("charge").key().is_ok());
    }
}
