//! Each property of the list of transactional stores can fail, as each of the [other list](crate::mutants) can.
//!
//! [`Ledger`](store::Ledger) keeps effects in memory beside the records of a memory store. Its transactions lock nothing:
//! a holder whose lease has lapsed is overtaken although its transaction is open, which no other store here allows.

mod harness;
mod store;

use idempotency_layer::conformance::transactional::transactional_properties;

use self::harness::LedgerHarness;
use crate::caught::mutants;

mod whole {
    use super::LedgerHarness;

    idempotency_layer::transactional_conformance_tests!(LedgerHarness::whole());
}

mutants! {
    of transactional_properties on LedgerHarness:

    effect_and_record_appear_together: EffectsAppearAtOnce,
    a_tombstone_commits_the_effect: TombstonesDropTheEffect,
    a_response_is_replayed_as_it_was_committed: CommitsDropTheTrailers,
    a_lapsed_holder_that_nobody_overtook_commits: BeginIsFencedByTime,
    overlapping_runs_commit_once_each: CommitsWriteBackWhatTheyRead,

    a_transaction_rolled_back_leaves_nothing: RollbackCommits,
    a_transaction_dropped_leaves_nothing: DropCommits,
    a_transaction_kept_and_abandoned_leaves_nothing: AbandonDoesNothing,

    only_the_holder_begins: BeginIsNotFenced,
    an_overtaken_holder_commits_nothing: CommitIsNotFenced,
    a_transaction_commits_under_its_own_lease_only: CommitTrustsWhoeverCompletes,

    a_commit_behind_our_back_is_lost: HandlersCommit,
    a_rollback_behind_our_back_is_lost: WhatWasRolledBackIsRecorded,
    a_transaction_put_in_its_place_is_lost: AnyTransactionCommits,
    an_overtaken_holder_of_a_lost_transaction_is_fenced: LostIsNotFenced,

    a_commit_is_confirmed: ConfirmLooksForARun,
    a_rollback_is_confirmed: ConfirmBelievesTheHolder,
    an_overtaken_holder_is_told_so: ConfirmBelievesAnyRecord,

    a_lease_is_renewed_while_its_transaction_is_open: RenewalIsNotWritten,
    a_renewal_outlives_its_transaction: RenewalIsPartOfTheTransaction,
    others_are_answered_while_a_transaction_is_open: ClaimsWaitForTransactions,

    a_dropped_begin_leaves_the_store_working: DroppedBeginsStay,
    a_dropped_commit_is_whole: CommitTakesTwoSteps,
}
