//! While a transaction is open its lease lives on, and everybody else gets an answer.

use super::super::key::{End, Key, answer_of};
use super::TransactionalHarness;
use super::run::{Run, is_kept_out, is_unavailable, within};
use crate::store::{Claim, Commit, Renewal};
use crate::{Store, TransactionalStore};

/// A holder renews while its transaction is open, and is not overtaken within the renewed lease.
///
/// Fails on a store that answers a renewal and leaves the lease as it was.
pub async fn a_lease_is_renewed_while_its_transaction_is_open<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    let transaction = run.begin_and_write().await;
    for _ in 0..2 {
        harness.pass(harness.lease() * 3 / 4).await;
        let renewal = within(run.key.renew(&run.lease)).await;
        assert_is!(renewal, Renewal::Renewed { .. }, "a renewal by a holder with an open transaction");
    }
    harness.pass(harness.lease() * 3 / 4).await;
    let (_, claim) = run.challenge().await;
    assert!(is_kept_out(&claim), "a claim on a renewed lease with an open transaction got {claim:?}");
    assert_eq!(run.complete_in(transaction).await, Commit::Committed, "a commit within a renewed lease");
    run.left_both("after a commit within a renewed lease").await;
}

/// A lease that was renewed while its transaction was open lives for its duration, although the transaction was rolled
/// back since.
///
/// Fails on a store that writes the renewal into the transaction.
pub async fn a_renewal_outlives_its_transaction<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    let transaction = run.begin_and_write().await;
    harness.pass(harness.lease() * 3 / 4).await;
    let renewal = within(run.key.renew(&run.lease)).await;
    assert_is!(renewal, Renewal::Renewed { .. }, "a renewal by a holder with an open transaction");
    within(run.key.store.rollback(transaction)).await;
    harness.pass(harness.lease() / 2).await;
    let (_, claim) = run.challenge().await;
    assert_is!(claim, Ok(Claim::InFlight { .. }), "a claim on a lease that was renewed before its rollback");
    run.left_nothing("after a renewal and a rollback").await;
}

/// While one key's transaction is open, a claim, a renewal and a replay of other keys are answered rightly, or told in
/// time that there is no answer. Sent again after the end of the transaction, each is answered rightly.
///
/// Fails on a store where a handler that keeps its transaction open stops everybody else for good.
pub async fn others_are_answered_while_a_transaction_is_open<H: TransactionalHarness>(harness: &H) {
    let other = Key::lasting(harness).await.through(harness.open().await);
    let fresh = other.fresh().request();
    let (running, recorded) = (other.fresh(), other.fresh());
    let (renewed, done) = (running.acquire().await, recorded.acquire().await);
    recorded.end_held(End::Complete, &done).await;
    let retry = recorded.request();

    let run = Run::lasting(harness).await;
    let transaction = run.begin_and_write().await;
    let (claim, renewal, replay) = tokio::join!(
        within(other.store.claim(&fresh)),
        within(other.store.renew(&renewed)),
        within(other.store.claim(&retry))
    );
    let is_replayed =
        |claim: &Claim| matches!(claim, Claim::Recorded(recorded) if recorded.response == answer_of(&done));
    assert!(is_unavailable(&claim) || matches!(claim, Ok(Claim::Acquired(_))), "a claim meanwhile got {claim:?}");
    assert!(
        is_unavailable(&renewal) || matches!(renewal, Ok(Renewal::Renewed { .. })),
        "a renewal meanwhile got {renewal:?}"
    );
    assert!(is_unavailable(&replay) || replay.as_ref().is_ok_and(is_replayed), "a retry meanwhile got {replay:?}");

    // A store may have ended the transaction meanwhile, if it sets a limit.
    match run.complete_in(transaction).await {
        Commit::Committed => run.left_both("after others were answered").await,
        Commit::Aborted | Commit::Lost => run.left_nothing("after it was open for long").await,
        Commit::Fenced => panic!("a holder with a long lease was overtaken"),
    }
    assert_is!(within(running.send(&fresh)).await, Claim::Acquired(_), "the claim, sent again");
    assert_is!(within(running.renew(&renewed)).await, Renewal::Renewed { .. }, "the renewal, sent again");
    assert_is!(within(recorded.send(&retry)).await, claim if is_replayed(&claim), "the retry, sent again");
}
