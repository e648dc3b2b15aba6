//! What becomes of a key when its handler has answered: recorded, free again, forgotten, or held.
//!
//! A pure table: the response says what the outcome is, and what the layer was told and what the run did say what is
//! written for it.
//!
//! | response | outcome | settlement |
//! |---|---|---|
//! | 2xx, 3xx, and a 4xx that is a result (402 404 409 410 412 …) | [`Record`](Outcome::Record) | recorded |
//! | 400 401 403 405 406 411 413 414 415 422 426 428 431; 404 and 405 of no route | [`NothingRan`](Outcome::NothingRan) | forgotten, so that a mended request may use the key; freed if the run could have done something |
//! | 425 429 | [`Free`](Outcome::Free) | freed: the same request may run, as the next attempt |
//! | 408, 5xx, a panic, an error, an aborted handler | [`Unknown`](Outcome::Unknown) | freed, or held under [`UnknownOutcome::Hold`] |
//!
//! "Could have done something" is one of these, and then the key must go on meaning this request:
//!
//! - This is not the first attempt, and an earlier one may have left effects behind.
//! - A transaction was given away.
//! - A [derived key](crate::Propagation) was given away, so that a call may have been made under it; or it still can be,
//!   because a clone of the run's `Propagation` is alive when the handler has answered, as in a task that it has spawned.

use http::StatusCode;

use crate::store::UnknownOutcome;

/// What a response says about the run, for the key.
///
/// Put one into the response's extensions to overrule the table in the [module docs](self). In a transaction, anything
/// but [`Record`](Self::Record) rolls back, whatever the status says:
///
/// ```
/// use http::{Response, StatusCode};
/// use idempotency_layer::Outcome;
///
/// // A 422 that the rules of the business came to: every retry gets it.
/// let mut response = Response::new(());
/// *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
/// response.extensions_mut().insert(Outcome::Record);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// This is the result. Every retry gets it.
    Record,
    /// Nothing happened, and a changed request may use the key; the same request only, if the run could have done something
    /// all the same.
    NothingRan,
    /// Nothing happened, and the same request may run again.
    Free,
    /// Something may or may not have happened.
    Unknown,
}

/// What the layer knows of the run beside its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunFacts {
    pub(crate) attempt: u32,
    pub(crate) gave_transaction: bool,
    /// A derived key was given away, or may yet be by what the run has left behind.
    pub(crate) may_have_given_key: bool,
    /// The request came through a router, and no route was for it.
    pub(crate) unrouted: bool,
    pub(crate) unknown: UnknownOutcome,
}

impl RunFacts {
    fn could_have_done_something(&self) -> bool {
        self.attempt > 1 || self.gave_transaction || self.may_have_given_key
    }
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Record,
    Forget,
    Release,
    Hold,
}

/// Reads the status of a run; no route means that no handler answered.
pub(crate) fn outcome(status: StatusCode, unrouted: bool) -> Outcome {
    if unrouted && status == StatusCode::NOT_FOUND { Outcome::NothingRan } else { outcome_of(status) }
}

/// Reads a status alone.
pub(crate) fn outcome_of(status: StatusCode) -> Outcome {
    match status.as_u16() {
        400 | 401 | 403 | 405 | 406 | 411 | 413 | 414 | 415 | 422 | 426 | 428 | 431 => Outcome::NothingRan,
        425 | 429 => Outcome::Free,
        408 | 500.. => Outcome::Unknown,
        _ => Outcome::Record,
    }
}

/// Decides what is written for an outcome.
pub(crate) fn settlement(outcome: Outcome, facts: &RunFacts) -> Settlement {
    match outcome {
        Outcome::Record => Settlement::Record,
        Outcome::NothingRan if !facts.could_have_done_something() => Settlement::Forget,
        Outcome::NothingRan | Outcome::Free => Settlement::Release,
        Outcome::Unknown => match facts.unknown {
            UnknownOutcome::Hold => Settlement::Hold,
            UnknownOutcome::Rerun => Settlement::Release,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: RunFacts = RunFacts {
        attempt: 1,
        gave_transaction: false,
        may_have_given_key: false,
        unrouted: false,
        unknown: UnknownOutcome::Rerun,
    };

    fn settle(status: u16, facts: RunFacts) -> Settlement {
        let status = StatusCode::from_u16(status).expect("a status");
        settlement(outcome(status, facts.unrouted), &facts)
    }

    /// Fails when any status moves to another row.
    #[test]
    fn every_status_has_its_row() {
        for status in 100..1000 {
            let expected = match status {
                400 | 401 | 403 | 405 | 406 | 411 | 413 | 414 | 415 | 422 | 426 | 428 | 431 => {
                    (Outcome::NothingRan, Settlement::Forget)
                }
                425 | 429 => (Outcome::Free, Settlement::Release),
                408 | 500..=999 => (Outcome::Unknown, Settlement::Release),
                _ => (Outcome::Record, Settlement::Record),
            };
            let read = outcome_of(StatusCode::from_u16(status).expect("a status"));
            assert_eq!((read, settlement(read, &FACTS)), expected, "{status}");
        }
    }

    /// Fails when `could_have_done_something` leaves out any of the three.
    #[test]
    fn a_run_that_could_have_done_something_is_not_forgotten() {
        assert_eq!(settle(400, RunFacts { attempt: 2, ..FACTS }), Settlement::Release);
        assert_eq!(settle(400, RunFacts { gave_transaction: true, ..FACTS }), Settlement::Release);
        assert_eq!(settle(400, RunFacts { may_have_given_key: true, ..FACTS }), Settlement::Release);
    }

    /// Fails when `settlement` holds a `Free` or a `NothingRan` under Hold, or frees an `Unknown`.
    #[test]
    fn hold_holds_what_is_unknown_and_nothing_else() {
        let hold = RunFacts { unknown: UnknownOutcome::Hold, ..FACTS };
        for status in [408, 500, 503, 599] {
            assert_eq!(settle(status, hold), Settlement::Hold, "{status}");
        }
        for status in [425, 429] {
            assert_eq!(settle(status, hold), Settlement::Release, "{status}");
        }
        assert_eq!(settle(201, hold), Settlement::Record);
        assert_eq!(settle(400, hold), Settlement::Forget);
    }

    /// Fails when `outcome` reads every 404 as `NothingRan`, or none.
    #[test]
    fn a_404_is_a_result_unless_no_route_was_found() {
        assert_eq!(settle(404, FACTS), Settlement::Record);
        assert_eq!(settle(404, RunFacts { unrouted: true, ..FACTS }), Settlement::Forget);
    }
}
