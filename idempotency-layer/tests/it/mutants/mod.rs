//! Each property of the conformance list can fail: there is a store for it that is broken in one way, and it is caught.
//!
//! [`MutantStore`](store::MutantStore) is a store of its own, in which a [`Mutation`] breaks one rule. Without one it
//! keeps the whole list, so that a property fails for the mutation and not for the store.

mod harness;
mod reply;
mod row;
mod store;

use idempotency_layer::conformance::properties;

pub(crate) use self::harness::MutantHarness;
use crate::caught::mutants;

mod whole {
    use super::MutantHarness;

    idempotency_layer::conformance_tests!(MutantHarness::whole());
}

mutants! {
    of properties on MutantHarness:

    one_of_many_overlapping_claimers_holds: ClaimChecksThenActs,
    of_two_overlapping_requests_one_is_refused: NewRunsAreNotCompared,
    overlapping_runs_take_turns: ReleaseIsRepeatedUnfenced,
    keys_are_apart: IdsAreShortened,
    attempts_are_counted_across_releases: FreeStartsAttemptsAnew,
    the_age_of_a_run_grows: AgeIsZero,
    the_age_is_of_the_current_run: AgeCountsFromTheFirstClaim,
    a_renewal_does_not_make_the_run_younger: AgeCountsFromTheLastWrite,
    look_tells_each_state: FreeLooksAbsent,
    look_tells_whether_a_run_has_lapsed: RunsLookLive,

    a_live_lease_keeps_others_out: LeasesAreHalved,
    a_lapsed_lease_is_taken_over_as_the_next_attempt: TakeoverKeepsTheAttempt,
    one_of_many_overlapping_claimers_takes_over: TakeoverChecksThenActs,
    a_renewed_lease_lives_for_its_duration_again: RenewalKeepsTheLease,
    a_renewed_lease_lapses: RenewedLeasesNeverLapse,
    a_lapsed_holder_that_nobody_overtook_renews: RenewalIsFencedByTime,
    a_lapsed_holder_that_nobody_overtook_ends_its_run: EndIsFencedByTime,
    a_renewal_that_crosses_the_last_write_is_no_loss: RenewalIsForRunsOnly,

    a_late_renewal_is_fenced: RenewalIsNotFenced,
    a_late_completion_is_fenced: CompletionIsNotFenced,
    a_late_tombstone_is_fenced: TombstoneIsNotFenced,
    a_late_release_is_fenced: ReleaseIsNotFenced,
    a_late_forget_is_fenced: ForgetIsNotFenced,
    a_late_hold_is_fenced: HoldIsNotFenced,
    an_ended_run_is_not_ended_otherwise: FencesLookAtTheIdAlone,
    a_completion_and_a_takeover_do_not_both_win: CompletionChecksThenActs,
    a_renewal_and_a_takeover_do_not_both_win: RenewalChecksThenActs,

    a_claim_sent_again_is_acquired_again: OwnClaimIsInFlight,
    a_claim_sent_again_starts_its_lease_anew: OwnClaimKeepsTheLease,
    overlapping_duplicates_of_a_claim_are_one_run: OwnClaimIsTheNextAttempt,
    a_claim_that_held_the_key_finds_it_held: HeldLetsItsWriterClaim,
    a_renewal_sent_again_is_renewed_again: RenewsOnce,
    a_completion_sent_again_is_done: RecordedForgetsItsWriter,
    a_release_sent_again_is_done: FreeForgetsItsWriter,
    a_forget_sent_again_is_done: ForgetNeedsARecord,
    a_hold_sent_again_is_done: HeldForgetsItsWriter,
    a_decision_sent_again_is_done: DecisionsForgetTheirWriter,
    a_late_write_changes_nothing: PastHoldersWrite,
    a_late_claim_loses_nothing: PastHoldersClaim,
    a_late_claim_does_not_rerun_what_it_freed: FreeLetsItsWriterClaim,
    a_late_decision_changes_nothing: DecisionsApplyAgain,
    a_late_decision_does_not_decide_a_later_hold: DecisionsCountForAnyHold,

    another_request_is_refused_in_every_state: FreeForgetsTheRequest,
    another_caller_is_told_in_every_state: CallerIsNotCompared,
    the_request_is_compared_before_the_caller: CallerIsComparedFirst,
    another_request_does_not_take_over: TakeoverIgnoresTheRequest,
    another_caller_does_not_take_over: TakeoverIgnoresTheCaller,

    a_lapsed_run_obeys_the_policy_of_its_claim: PolicyIsTheNextClaims,
    a_released_run_is_run_again_under_hold: HoldHoldsWhatIsFree,
    too_many_lapsed_runs_are_held: LapsesAreUnlimited,
    released_runs_do_not_count_as_lapsed: ReleasesCountAsLapses,
    lapsed_runs_count_across_releases: ReleaseForgetsLapses,
    an_operators_free_counts_lapses_from_zero: OperatorsFreeKeepsLapses,

    a_held_key_runs_for_nobody: HeldIsFree,
    a_held_key_does_not_expire: HeldExpires,
    held_records_are_listed_in_the_order_of_their_ids: PagesRepeatTheirStart,
    the_list_of_held_records_ends: FullPagesLeadOn,
    the_first_page_begins_at_the_smallest_id: FirstPageSkipsTheSmallestId,
    the_list_tells_cause_attempt_and_age: HeldHasOneCause,
    looking_finds_a_hold_as_the_list_does: LooksTellOneCause,
    a_held_key_is_settled: SettleDropsTheBody,
    a_held_key_is_freed: OperatorsFreeForgets,
    a_held_key_is_forgotten: OperatorsForgetFrees,
    only_a_held_key_is_resolved: DecisionsNeedNoHold,
    a_second_decision_is_fenced: SecondDecisionsReplace,
    one_of_two_overlapping_decisions_counts: DecisionChecksThenActs,

    a_run_that_lapsed_under_hold_does_not_expire: RunsUnderHoldExpire,
    a_run_that_lapsed_under_hold_is_listed: LapsesUnderHoldAreNotListed,
    a_run_that_lapsed_under_hold_is_seen_as_held: LapsesUnderHoldLookRunning,
    a_run_that_lives_under_hold_is_not_held: RunsUnderHoldAreHeld,
    a_run_that_lapsed_under_rerun_is_not_held: LapsesUnderRerunAreHeld,
    a_page_passes_over_runs_that_live: LiveRunsTakePlaces,
    a_run_that_lapsed_under_hold_is_decided_and_its_holder_fenced: LapsesUnderHoldAreNotDecided,
    a_holder_that_lapsed_under_hold_still_renews: LapsesUnderHoldAreNotRenewed,
    a_holder_that_lapsed_under_hold_still_ends_its_run: LapsesUnderHoldAreNotEnded,
    a_completion_and_a_decision_do_not_both_win: DecisionOfALapseChecksThenActs,

    a_settled_key_is_new_after_its_retention: SettledNeverExpires,
    a_lapsed_key_is_new_after_its_retention: RunsNeverExpire,
    a_replay_tells_how_long_the_key_is_kept: ReplaysTellTheWholeRetention,
    the_retention_counts_from_the_last_write: RetentionCountsFromTheClaim,
    the_retention_counts_from_the_decision: RetentionCountsFromTheHold,
    a_renewal_prolongs_the_retention: RenewalKeepsTheRetention,
    a_renewal_that_crosses_prolongs_nothing: CrossingRenewalIsAWrite,
    a_live_lease_is_never_removed: LiveRunsExpire,
    the_retention_is_the_records_own: OneRetentionForAll,
    a_record_outlives_its_lease: RecordsEndWithTheirLease,
    a_forgotten_key_is_new_to_any_request: ForgetFrees,

    each_status_is_replayed: UncommonStatusesAreLost,
    repeated_headers_are_replayed_in_order: OneValueForEachHeader,
    header_bytes_are_replayed: HeadersAreText,
    bodies_are_replayed: BodiesAreText,
    trailers_are_replayed: TrailersAreDropped,
    tombstones_tell_status_and_reason: OneTombstoneReason,
    the_first_response_stays: TheLatestResponseWins,

    each_end_of_a_run_wakes_every_watcher: WakesOneWatcher,
    a_change_before_the_first_poll_is_not_missed: SubscribesWhenPolled,
    a_change_after_the_first_poll_wakes: WakesNobody,
    a_decision_wakes: DecisionsDoNotWake,

    a_corrupt_record_is_told_and_left_alone: CorruptIsAbsent,
    a_newer_record_is_told_and_left_alone: NewerIsCorrupt,
    a_corrupt_record_does_not_break_the_list: ACorruptRecordBreaksTheList,

    a_dropped_claim_is_whole: ClaimTakesTwoSteps,
    a_dropped_completion_is_whole: CompletionTakesTwoSteps,

    clones_have_one_identity: IdentityIsMadeUp,
    another_store_has_another_identity: OneIdentityForAll,
    handles_reach_the_same_records: HandlesRemember,
}
