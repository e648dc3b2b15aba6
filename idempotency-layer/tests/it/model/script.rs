//! What is sent about one key, and when.

use proptest::collection::vec;
use proptest::prelude::*;

/// A few claims, and the steps that are taken with them.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(super) claims: Vec<Wish>,
    pub(super) steps: Vec<Step>,
}

/// One claim. Each has an id of its own, so that sending it again is a duplicate.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) fingerprint: u8,
    pub(super) caller: u8,
    pub(super) long_lease: bool,
    pub(super) long_retention: bool,
    pub(super) hold: bool,
    pub(super) max_attempts: u32,
    /// Whether this run, if it completes, leaves a tombstone.
    pub(super) buries: bool,
}

/// A message by the id at this place of the claims, a decision, or time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Claim(usize),
    Renew(usize),
    Complete(usize),
    Release(usize),
    Forget(usize),
    Hold(usize),
    /// Decides the hold that the id at this place wrote. Each such decision has one id: sent twice, it is a duplicate.
    Decide(Decision, usize),
    /// As if it had said which id wrote the latest hold.
    DecideLatest(Decision),
    Pass(Span),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Settle,
    Free,
    Forget,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Span {
    QuarterLease,
    HalfLease,
    LongerThanLease,
    HalfRetention,
    LongerThanRetention,
}

impl Step {
    /// The step by its full name.
    pub(super) fn aimed(self, latest_hold: usize) -> Self {
        match self {
            Self::DecideLatest(decision) => Self::Decide(decision, latest_hold),
            other => other,
        }
    }
}

pub(super) fn scripts() -> impl Strategy<Value = Script> {
    (vec(wish(), CLAIMS), vec(step(), 1..48)).prop_map(|(claims, steps)| Script { claims, steps })
}

fn wish() -> impl Strategy<Value = Wish> {
    let rarely = || prop_oneof![5 => Just(0_u8), 1 => Just(1)];
    (rarely(), rarely(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), 1_u32..4, any::<bool>()).prop_map(
        |(fingerprint, caller, long_lease, long_retention, hold, max_attempts, buries)| Wish {
            fingerprint,
            caller,
            long_lease,
            long_retention,
            hold,
            max_attempts,
            buries,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..CLAIMS;
    prop_oneof![
        8 => id().prop_map(Step::Claim),
        4 => id().prop_map(Step::Renew),
        3 => id().prop_map(Step::Complete),
        4 => id().prop_map(Step::Release),
        1 => id().prop_map(Step::Forget),
        2 => id().prop_map(Step::Hold),
        3 => decision().prop_map(Step::DecideLatest),
        2 => (decision(), id()).prop_map(|(decision, at)| Step::Decide(decision, at)),
        8 => prop_oneof![
            3 => Just(Span::QuarterLease),
            3 => Just(Span::HalfLease),
            5 => Just(Span::LongerThanLease),
            2 => Just(Span::HalfRetention),
            1 => Just(Span::LongerThanRetention),
        ].prop_map(Step::Pass),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![Just(Decision::Settle), Just(Decision::Free), Just(Decision::Forget)]
}

pub(super) const CLAIMS: usize = 5;
