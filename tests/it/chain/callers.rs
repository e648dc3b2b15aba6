//! Whose key it is decides what is the same order, and whether the provider honours keys decides what a kill may do.

use client_retry::{Class, IdempotencyKey};
use idempotency_tests::failpoint::Point;
use idempotency_tests::shop::DELIVERY;
use idempotency_tests::wire::Version;

use super::caller::Caller;
use super::premises::{PRICE, Premises};
use super::{EVERYONE, sqlite};

/// E4. Fails when `machine::claim` takes over a lease that has not lapsed, or `record_id` leaves out the key.
#[tokio::test(flavor = "multi_thread")]
async fn two_attempts_at_once_under_one_key_are_one_order_and_another_key_is_another() {
    let folder = tempfile::tempdir().unwrap();
    order_at_once(|name| sqlite(&folder, name)).await;
}

/// Orders twice under one key and once under another, while the first runs.
pub(crate) async fn order_at_once(store: impl Fn(&str) -> String) {
    for version in Version::BOTH {
        let premises = Premises::new(store(&format!("{version:?}")), version).await;
        let _shop = premises.open(&[]).await;
        let gate = premises.provider.holds();
        let (caller, key) = (Caller::new(version), IdempotencyKey::random());
        let first = caller.order_under(key.clone(), premises.address);
        gate.entered().await;
        let second = caller.order_under(key, premises.address);
        caller.ended(1).await;
        let other = caller.order(premises.address);
        gate.entered().await;
        gate.release(EVERYONE);

        let (first, second, other) = (first.await.unwrap(), second.await.unwrap(), other.await.unwrap());
        assert_eq!((first.status, second.status, other.status), (201, 201, 201), "{version:?}");
        assert_eq!(second.report.attempts()[0].class(), Class::InProgress, "{version:?}");
        assert!(second.report.is_replayed() && first.body == second.body, "{version:?}");
        assert!(!other.report.is_replayed() && first.body != other.body, "{version:?}");
        assert_eq!(caller.orders(premises.address).await, "2", "{version:?}");
        premises.assert_charged(2, &format!("{version:?}"));
    }
}

/// E5, the limit of all this. Fails when `Books::claim` honours keys in spite of `Keys::Ignores`, or
/// `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn provider_that_ignores_keys_charges_again_for_a_run_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let premises = Premises::new(sqlite(&folder, "shop"), Version::Http1).await;
    premises.provider.ignores_keys();
    let mut doomed = premises.open(&["--lease", "1000", "--failpoint", &Point::Charged.name()]).await;
    let caller = Caller::new(Version::Http1);
    let ordering = caller.order(premises.address);
    doomed.line_after("failpoint ").await;
    doomed.kill().await;
    let _heir = premises.open(&[]).await;
    assert_eq!(ordering.await.unwrap().status, 201);
    assert_eq!(caller.orders(premises.address).await, "1", "what is in the shop's own books is there once");
    let ledger = premises.provider.ledger();
    let amounts: Vec<_> = ledger.iter().map(|charge| charge.amount).collect();
    assert_eq!(amounts, [PRICE, DELIVERY, PRICE, DELIVERY]);
    assert!(ledger[..2] == ledger[2..], "the second run asks under the keys of the first");
}
