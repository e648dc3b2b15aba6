//! The list of properties that every store keeps, to run on a store of your own.
//!
//! Each property is an `async fn` over a [`Harness`] that panics with what it saw when the store breaks the property.
//! It works on fresh random records, so that all of them can run at once on one server, beside whatever else is
//! stored there. [`conformance_tests!`](crate::conformance_tests) makes one test of each; [`properties`] lists them
//! by name; [`run`] checks them one after the other. A store with transactions runs a second list, [`transactional`].
//!
//! What the list does not show: that the store is durable, survives a fail-over, or keeps its promises when it is cut
//! off from its server. It shows that the store decides rightly when it can decide.
//!
//! ```
//! use idempotency_layer::conformance::{self, MemoryHarness};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! conformance::run(&MemoryHarness::new()).await;
//! # });
//! ```

/// Asserts that a value matches a pattern, and shows the value when it does not.
macro_rules! assert_is {
    ($value:expr, $pattern:pat $(if $guard:expr)?, $($situation:tt)+) => {
        match $value {
            $pattern $(if $guard)? => {}
            other => panic!("{}: {other:?}", format_args!($($situation)+)),
        }
    };
}

pub mod claims;
pub mod damage;
pub mod dropping;
pub mod duplicates;
pub mod fences;
mod harness;
pub mod held;
pub mod identity;
mod key;
pub mod lapsed;
pub mod leases;
#[macro_use]
mod list;
mod memory;
pub mod mismatch;
mod overlap;
pub mod policy;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
pub mod responses;
pub mod retention;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stage;
pub mod transactional;
pub mod waiting;

pub use self::harness::{Erased, Harness};
pub use self::list::Property;
pub use self::memory::MemoryHarness;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresHarness;
#[cfg(feature = "redis")]
pub use self::redis::RedisHarness;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteHarness;

/// Checks every property, each of them even when one before it failed.
///
/// # Panics
///
/// When the store does not keep all of them; the message names those that it does not keep.
pub async fn run<H: Harness>(harness: &H) {
    list::check_all(properties::<H>(), harness).await;
}

list! { $
    /// The whole list, in the order in which a store is best built.
    fn properties<Harness>;

    /// Makes one test of each property of the [conformance list](crate::conformance).
    ///
    /// It takes an expression for the [`Harness`](crate::conformance::Harness), which is evaluated in each test and may
    /// contain `.await`. The tests are `tokio`'s; the features `macros` and `rt-multi-thread` are needed.
    ///
    /// ```
    /// mod memory {
    ///     use idempotency_layer::conformance::MemoryHarness;
    ///
    ///     idempotency_layer::conformance_tests!(MemoryHarness::new());
    /// }
    /// ```
    macro conformance_tests in conformance;

    claims {
        one_of_many_overlapping_claimers_holds,
        of_two_overlapping_requests_one_is_refused,
        overlapping_runs_take_turns,
        keys_are_apart,
        attempts_are_counted_across_releases,
        the_age_of_a_run_grows,
        the_age_is_of_the_current_run,
        a_renewal_does_not_make_the_run_younger,
        look_tells_each_state,
        look_tells_whether_a_run_has_lapsed,
    }
    leases {
        a_live_lease_keeps_others_out,
        a_lapsed_lease_is_taken_over_as_the_next_attempt,
        one_of_many_overlapping_claimers_takes_over,
        a_renewed_lease_lives_for_its_duration_again,
        a_renewed_lease_lapses,
        a_lapsed_holder_that_nobody_overtook_renews,
        a_lapsed_holder_that_nobody_overtook_ends_its_run,
        a_renewal_that_crosses_the_last_write_is_no_loss,
    }
    fences {
        a_late_renewal_is_fenced,
        a_late_completion_is_fenced,
        a_late_tombstone_is_fenced,
        a_late_release_is_fenced,
        a_late_forget_is_fenced,
        a_late_hold_is_fenced,
        an_ended_run_is_not_ended_otherwise,
        a_completion_and_a_takeover_do_not_both_win,
        a_renewal_and_a_takeover_do_not_both_win,
    }
    duplicates {
        a_claim_sent_again_is_acquired_again,
        a_claim_sent_again_starts_its_lease_anew,
        overlapping_duplicates_of_a_claim_are_one_run,
        a_claim_that_held_the_key_finds_it_held,
        a_renewal_sent_again_is_renewed_again,
        a_completion_sent_again_is_done,
        a_release_sent_again_is_done,
        a_forget_sent_again_is_done,
        a_hold_sent_again_is_done,
        a_decision_sent_again_is_done,
        a_late_write_changes_nothing,
        a_late_claim_loses_nothing,
        a_late_claim_does_not_rerun_what_it_freed,
        a_late_decision_changes_nothing,
        a_late_decision_does_not_decide_a_later_hold,
    }
    mismatch {
        another_request_is_refused_in_every_state,
        another_caller_is_told_in_every_state,
        the_request_is_compared_before_the_caller,
        another_request_does_not_take_over,
        another_caller_does_not_take_over,
    }
    policy {
        a_lapsed_run_obeys_the_policy_of_its_claim,
        a_released_run_is_run_again_under_hold,
        too_many_lapsed_runs_are_held,
        released_runs_do_not_count_as_lapsed,
        lapsed_runs_count_across_releases,
        an_operators_free_counts_lapses_from_zero,
    }
    held {
        a_held_key_runs_for_nobody,
        a_held_key_does_not_expire,
        held_records_are_listed_in_the_order_of_their_ids,
        the_list_of_held_records_ends,
        the_first_page_begins_at_the_smallest_id,
        the_list_tells_cause_attempt_and_age,
        looking_finds_a_hold_as_the_list_does,
        a_held_key_is_settled,
        a_held_key_is_freed,
        a_held_key_is_forgotten,
        only_a_held_key_is_resolved,
        a_second_decision_is_fenced,
        one_of_two_overlapping_decisions_counts,
    }
    lapsed {
        a_run_that_lapsed_under_hold_does_not_expire,
        a_run_that_lapsed_under_hold_is_listed,
        a_run_that_lapsed_under_hold_is_seen_as_held,
        a_run_that_lives_under_hold_is_not_held,
        a_run_that_lapsed_under_rerun_is_not_held,
        a_page_passes_over_runs_that_live,
        a_run_that_lapsed_under_hold_is_decided_and_its_holder_fenced,
        a_holder_that_lapsed_under_hold_still_renews,
        a_holder_that_lapsed_under_hold_still_ends_its_run,
        a_completion_and_a_decision_do_not_both_win,
    }
    retention {
        a_settled_key_is_new_after_its_retention,
        a_lapsed_key_is_new_after_its_retention,
        a_replay_tells_how_long_the_key_is_kept,
        the_retention_counts_from_the_last_write,
        the_retention_counts_from_the_decision,
        a_renewal_prolongs_the_retention,
        a_renewal_that_crosses_prolongs_nothing,
        a_live_lease_is_never_removed,
        the_retention_is_the_records_own,
        a_record_outlives_its_lease,
        a_forgotten_key_is_new_to_any_request,
    }
    responses {
        each_status_is_replayed,
        repeated_headers_are_replayed_in_order,
        header_bytes_are_replayed,
        bodies_are_replayed,
        trailers_are_replayed,
        tombstones_tell_status_and_reason,
        the_first_response_stays,
    }
    waiting {
        each_end_of_a_run_wakes_every_watcher,
        a_change_before_the_first_poll_is_not_missed,
        a_change_after_the_first_poll_wakes,
        a_decision_wakes,
    }
    damage {
        a_corrupt_record_is_told_and_left_alone,
        a_newer_record_is_told_and_left_alone,
        a_corrupt_record_does_not_break_the_list,
    }
    dropping {
        a_dropped_claim_is_whole,
        a_dropped_completion_is_whole,
    }
    identity {
        clones_have_one_identity,
        another_store_has_another_identity,
        handles_reach_the_same_records,
    }
}
