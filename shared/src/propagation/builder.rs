//! A run is described once, before its first call: a [`PropagationBuilder`] collects what the request
//! arrived with.

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{DerivationSecret, Propagation, Run};
use crate::IdempotencyKey;

/// A [`Propagation`] that is being described.
#[must_use]
pub struct PropagationBuilder {
    run: Run,
}

impl PropagationBuilder {
    pub(super) fn new(scope: Arc<str>, key: IdempotencyKey) -> Self {
        Self {
            run: Run {
                scope,
                principal: None,
                key,
                attempt: NonZeroU32::MIN,
                deadline: None,
                secret: None,
                given: Mutex::new(HashSet::new()),
            },
        }
    }

    /// Says whose key it is. Without it, it is nobody's.
    pub fn principal(mut self, principal: impl Into<Box<str>>) -> Self {
        self.run.principal = Some(principal.into());
        self
    }

    /// Says which run of the key this is. Without it, it is the first.
    ///
    /// No derived key depends on it.
    pub fn attempt(mut self, attempt: NonZeroU32) -> Self {
        self.run.attempt = attempt;
        self
    }

    /// Says until when an answer is of use. Without it, there is no end.
    ///
    /// It is an instant of the monotonic clock because it is for this run's own calls and timers: it
    /// is neither stored nor sent, and must not move when somebody sets the wall clock.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.run.deadline = Some(deadline);
        self
    }

    /// Derives under a secret. Without it, whoever knows the parent key can compute the derived
    /// ones.
    ///
    /// Under another secret every derived key is another one. To change it while runs may still
    /// start again is to repeat their calls.
    pub fn secret(mut self, secret: DerivationSecret) -> Self {
        self.run.secret = Some(secret);
        self
    }

    /// The run as it was described, which has given no key away yet.
    #[must_use]
    pub fn build(self) -> Propagation {
        Propagation { run: Arc::new(self.run) }
    }
}

impl Debug for PropagationBuilder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("PropagationBuilder").field("scope", &self.run.scope).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `attempt` or `deadline` drops its argument, or `new` begins with attempt 2.
    #[test]
    fn run_is_as_it_was_described() {
        let key = IdempotencyKey::random();
        let plain = Propagation::builder("order:create", key.clone()).build();
        assert_eq!(plain.scope(), "order:create");
        assert_eq!(plain.parent_key(), &key);
        assert_eq!((plain.principal(), plain.attempt().get(), plain.deadline()), (None, 1, None));

        let attempt = NonZeroU32::new(3).unwrap();
        let deadline = Instant::now();
        let full = Propagation::builder("", key).principal("").attempt(attempt).deadline(deadline).build();
        assert_eq!((full.principal(), full.attempt(), full.deadline()), (Some(""), attempt, Some(deadline)));
    }
}
