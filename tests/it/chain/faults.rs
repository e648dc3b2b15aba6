//! The provider fails, in every way that it can, between it and the shop.

use std::iter::repeat_n;

use futures_util::future::join_all;
use h2::Reason;
use idempotency_tests::provider::{Answer, Ending, Fault};
use idempotency_tests::wire::Version;

use super::caller::Caller;
use super::premises::Premises;
use super::sqlite;
use crate::client::lost::losses;

/// E1. Fails when `propagation` does not ask for the current one, `run::start` puts none around the handler, or
/// `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_provider_fails_with_each_order_is_made_and_charged_once() {
    let folder = tempfile::tempdir().unwrap();
    strike(|name| sqlite(&folder, name)).await;
}

/// E1, for longer than one run asks. Fails when `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_gives_up_is_followed_by_one_that_asks_under_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    for version in Version::BOTH {
        let premises = Premises::new(sqlite(&folder, &format!("{version:?}")), version).await;
        let _shop = premises.open(&[]).await;
        premises.provider.script(repeat_n(Fault::committed(Ending::Close), 12));
        let caller = Caller::new(version);
        let ordered = caller.order(premises.address).await.unwrap();
        assert_eq!(ordered.status, 201, "{version:?}: {}", ordered.report);
        assert!(ordered.report.attempts().len() > 2, "{version:?}: no run has given up: {}", ordered.report);
        assert_eq!(caller.orders(premises.address).await, "1", "{version:?}");
        premises.assert_charged(1, &format!("{version:?}"));
    }
}

/// Orders once for each fault, over both versions of HTTP at once.
pub(crate) async fn strike(store: impl Fn(&str) -> String) {
    join_all(Version::BOTH.map(|version| strike_over(version, store(&format!("{version:?}"))))).await;
}

async fn strike_over(version: Version, store: String) {
    let premises = Premises::new(store, version).await;
    let provider = &premises.provider;
    let _shop = premises.open(&[]).await;
    for (before, fault) in faults(version).into_iter().enumerate() {
        let case = format!("{version:?} {fault:?}");
        let seen = || provider.received().len() + provider.connections();
        let seen_before = seen();
        // The price is asked for again before the delivery is.
        provider.script([Some(fault.clone()), None, Some(fault)]);
        let caller = Caller::new(Version::Http1);
        let ordered = caller.order(premises.address).await.unwrap();
        assert_eq!(ordered.status, 201, "{case}: {}", ordered.report);
        assert_eq!(caller.orders(premises.address).await, "1", "{case}");
        premises.assert_charged(before + 1, &case);
        assert!(seen() - seen_before >= 4, "{case}: the fault did not strike");
    }
}

/// Every fault that is none of what was asked for. The first is for a connection, of which there is none before it.
fn faults(version: Version) -> Vec<Fault> {
    let mut before: Vec<Ending> = vec![Ending::Reset, Ending::Close, Ending::Silence];
    let answers = [408, 425, 429, 500, 502, 503, 504];
    before.extend(answers.map(|status| Answer::new(status).into()));
    let mut after = losses(version);
    after.extend([425, 429, 503].map(|status| Answer::new(status).into()));
    let mut faults = vec![Fault::accepted()];
    match version {
        // Whose length nobody said is not read within the attempt: the run fails.
        Version::Http1 => after.push(Ending::OpenChunks),
        Version::Http2 => {
            let resets = [Reason::REFUSED_STREAM, Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::NO_ERROR];
            before.extend(resets.map(Ending::ResetStream));
            let leaves = [Reason::NO_ERROR, Reason::ENHANCE_YOUR_CALM, Reason::INTERNAL_ERROR];
            faults.extend(leaves.map(|reason| Fault::unread(Ending::GoAway(reason))));
        }
    }
    faults.extend(before.iter().cloned().map(Fault::unread));
    faults.extend(before.into_iter().map(Fault::uncommitted));
    faults.extend(after.into_iter().map(Fault::committed));
    faults
}
