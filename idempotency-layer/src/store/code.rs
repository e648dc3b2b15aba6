//! The numbers that databases keep for a record's state and what goes with it, the same in each.
//!
//! A number once given is never given another meaning; what a later version adds gets a new one.

use super::{HeldCause, TombstoneReason, UnknownOutcome};

pub(crate) const RUNNING: i64 = 1;
pub(crate) const RECORDED: i64 = 2;
pub(crate) const TOMBSTONE: i64 = 3;
pub(crate) const FREE: i64 = 4;
pub(crate) const HELD: i64 = 5;

pub(crate) fn of_cause(cause: HeldCause) -> i64 {
    match cause {
        HeldCause::Unknown => 1,
        HeldCause::Lapsed => 2,
    }
}

pub(crate) fn cause(code: i64) -> Option<HeldCause> {
    match code {
        1 => Some(HeldCause::Unknown),
        2 => Some(HeldCause::Lapsed),
        _ => None,
    }
}

pub(crate) fn of_reason(reason: TombstoneReason) -> i64 {
    match reason {
        TombstoneReason::TooLarge => 1,
        TombstoneReason::Streamed => 2,
        TombstoneReason::Upgraded => 3,
    }
}

pub(crate) fn reason(code: i64) -> Option<TombstoneReason> {
    match code {
        1 => Some(TombstoneReason::TooLarge),
        2 => Some(TombstoneReason::Streamed),
        3 => Some(TombstoneReason::Upgraded),
        _ => None,
    }
}

pub(crate) fn of_unknown(outcome: UnknownOutcome) -> i64 {
    match outcome {
        UnknownOutcome::Rerun => 1,
        UnknownOutcome::Hold => 2,
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn unknown(code: i64) -> Option<UnknownOutcome> {
    match code {
        1 => Some(UnknownOutcome::Rerun),
        2 => Some(UnknownOutcome::Hold),
        _ => None,
    }
}
