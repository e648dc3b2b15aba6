//! Any sequence of verbs, duplicates and passing time gets from a store the answers that a plain model gives.
//!
//! The [model](reference) is written from the docs of [`Store`] and shares no code with any store. A [script](script)
//! is about one key: a few claims that any later message may repeat, and what is sent in which order. It leaves out
//! what the docs leave open: damaged records, one id with two different outcomes, and writes by an id that never ran.

mod player;
mod reference;
mod script;

use idempotency_layer::conformance::{Erased, Harness, MemoryHarness};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use self::script::Script;
use crate::mutants::{MutantHarness, Mutation};

/// Fails when `machine::renew` leaves the lease as it was.
#[test]
fn memory_answers_like_the_model() {
    agrees(512, MemoryHarness::new).unwrap();
}

/// Fails when `SharedStore` forwards `release` to `forget`.
#[test]
fn erased_memory_answers_like_the_model() {
    agrees(64, || Erased(MemoryHarness::new())).unwrap();
}

/// Holds the store that is broken on purpose to being right otherwise. Fails when any rule of it is not the model's.
#[test]
fn the_whole_mutant_store_answers_like_the_model() {
    agrees(512, MutantHarness::whole).unwrap();
}

/// Holds the scripts to reaching every rule. Fails when they let no time pass, or send nothing twice.
#[test]
fn the_model_catches_mutants() {
    let mut missed = Vec::new();
    for mutation in CAUGHT {
        if agrees(4_000, || MutantHarness::broken(mutation)).is_ok() {
            missed.push(mutation);
        }
    }
    assert!(missed.is_empty(), "the model misses {missed:?}");
}

/// Plays so many scripts, each on a harness of its own. The scripts are the same in every run of the test.
pub(crate) fn agrees<H: Harness>(cases: u32, harness: impl Fn() -> H) -> Result<(), TestError<Script>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng)
        .run(&script::scripts(), |script| runtime.block_on(player::play(&harness(), &script)))
}

/// Every mutation of what a record becomes and of what is told about it.
const CAUGHT: [Mutation; 54] = [
    Mutation::FreeStartsAttemptsAnew,
    Mutation::AgeIsZero,
    Mutation::AgeCountsFromTheFirstClaim,
    Mutation::AgeCountsFromTheLastWrite,
    Mutation::FreeLooksAbsent,
    Mutation::RunsLookLive,
    Mutation::LeasesAreHalved,
    Mutation::TakeoverKeepsTheAttempt,
    Mutation::RenewalKeepsTheLease,
    Mutation::RenewedLeasesNeverLapse,
    Mutation::RenewalIsFencedByTime,
    Mutation::EndIsFencedByTime,
    Mutation::RenewalIsForRunsOnly,
    Mutation::RenewalIsNotFenced,
    Mutation::CompletionIsNotFenced,
    Mutation::TombstoneIsNotFenced,
    Mutation::ReleaseIsNotFenced,
    Mutation::ForgetIsNotFenced,
    Mutation::HoldIsNotFenced,
    Mutation::FencesLookAtTheIdAlone,
    Mutation::OwnClaimIsInFlight,
    Mutation::OwnClaimKeepsTheLease,
    Mutation::OwnClaimIsTheNextAttempt,
    Mutation::RecordedForgetsItsWriter,
    Mutation::FreeForgetsItsWriter,
    Mutation::HeldForgetsItsWriter,
    Mutation::PastHoldersWrite,
    Mutation::PastHoldersClaim,
    Mutation::FreeLetsItsWriterClaim,
    Mutation::FreeForgetsTheRequest,
    Mutation::CallerIsNotCompared,
    Mutation::CallerIsComparedFirst,
    Mutation::TakeoverIgnoresTheRequest,
    Mutation::PolicyIsTheNextClaims,
    Mutation::LapsesAreUnlimited,
    Mutation::ReleasesCountAsLapses,
    Mutation::ReleaseForgetsLapses,
    Mutation::OperatorsFreeKeepsLapses,
    Mutation::HeldExpires,
    Mutation::HeldHasOneCause,
    Mutation::LooksTellOneCause,
    Mutation::DecisionsCountForAnyHold,
    Mutation::RetentionCountsFromTheClaim,
    Mutation::RenewalKeepsTheRetention,
    Mutation::CrossingRenewalIsAWrite,
    Mutation::LiveRunsExpire,
    Mutation::RunsUnderHoldExpire,
    Mutation::LapsesUnderHoldAreNotListed,
    Mutation::LapsesUnderHoldLookRunning,
    Mutation::RunsUnderHoldAreHeld,
    Mutation::LapsesUnderRerunAreHeld,
    Mutation::LapsesUnderHoldAreNotDecided,
    Mutation::LapsesUnderHoldAreNotRenewed,
    Mutation::LapsesUnderHoldAreNotEnded,
];
