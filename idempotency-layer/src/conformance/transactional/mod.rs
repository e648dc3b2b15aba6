//! The list of properties that every [`TransactionalStore`](crate::TransactionalStore) keeps: effect and record appear
//! together or not at all.
//!
//! It is made and run like the [list of all stores](super), which such a store runs too.
//! [`transactional_conformance_tests!`](crate::transactional_conformance_tests) makes one test of each property;
//! [`transactional_properties`] lists them by name; [`run`] checks them one after the other.
//!
//! What stores may decide for themselves, the list leaves to them. A holder whose lease has lapsed while its transaction
//! was open may be overtaken, and is then fenced; or the transaction keeps others out, and then it commits.
//!
//! What the list does not show: that a commit survives a crash, or what happens when the connection breaks in the midst
//! of one.

pub mod behind;
pub mod commits;
pub mod confirming;
pub mod dropping;
pub mod endings;
pub mod fences;
mod harness;
mod run;
pub mod waiting;

pub use self::harness::{Ending, ErasedTransactional, TransactionOf, TransactionalHarness};
use super::list::{Property, check_all};

/// Checks every property, each of them even when one before it failed.
///
/// # Panics
///
/// When the store does not keep all of them; the message names those that it does not keep.
pub async fn run<H: TransactionalHarness>(harness: &H) {
    check_all(transactional_properties::<H>(), harness).await;
}

list! { $
    /// The whole list, in the order in which a store is best built.
    fn transactional_properties<TransactionalHarness>;

    /// Makes one test of each property of the [list of transactional stores](crate::conformance::transactional).
    ///
    /// It takes an expression for the [`TransactionalHarness`](crate::conformance::transactional::TransactionalHarness),
    /// which is evaluated in each test and may contain `.await`. The tests are `tokio`'s; the features `macros` and
    /// `rt-multi-thread` are needed.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// mod sqlite {
    ///     use idempotency_layer::conformance::SqliteHarness;
    ///
    ///     idempotency_layer::transactional_conformance_tests!(SqliteHarness::clones("a/folder/of/its/own"));
    /// }
    /// ```
    macro transactional_conformance_tests in conformance::transactional;

    commits {
        effect_and_record_appear_together,
        a_tombstone_commits_the_effect,
        a_response_is_replayed_as_it_was_committed,
        a_lapsed_holder_that_nobody_overtook_commits,
        overlapping_runs_commit_once_each,
    }
    endings {
        a_transaction_rolled_back_leaves_nothing,
        a_transaction_dropped_leaves_nothing,
        a_transaction_kept_and_abandoned_leaves_nothing,
    }
    fences {
        only_the_holder_begins,
        an_overtaken_holder_commits_nothing,
        a_transaction_commits_under_its_own_lease_only,
    }
    behind {
        a_commit_behind_our_back_is_lost,
        a_rollback_behind_our_back_is_lost,
        a_transaction_put_in_its_place_is_lost,
        an_overtaken_holder_of_a_lost_transaction_is_fenced,
    }
    confirming {
        a_commit_is_confirmed,
        a_rollback_is_confirmed,
        an_overtaken_holder_is_told_so,
    }
    waiting {
        a_lease_is_renewed_while_its_transaction_is_open,
        a_renewal_outlives_its_transaction,
        others_are_answered_while_a_transaction_is_open,
    }
    dropping {
        a_dropped_begin_leaves_the_store_working,
        a_dropped_commit_is_whole,
    }
}
