//! What is between the caller and the shop fails: before the run, while it goes on, and after it.

use client_retry::IdempotencyKey;
use futures_util::future::join_all;
use idempotency_tests::provider::Provider;
use idempotency_tests::proxy::{Proxy, Request};
use idempotency_tests::wire::Version;

use super::caller::{Caller, Ordered};
use super::premises::Premises;
use super::{EVERYONE, sqlite};

/// E2. Fails when `machine::claim` runs what is recorded, and when `Run::drive` ends with its client.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_lost_before_the_service_each_order_is_made_and_charged_once() {
    let folder = tempfile::tempdir().unwrap();
    strike(|name| sqlite(&folder, name)).await;
}

/// How the way to the shop fails once.
#[derive(Clone, Copy, Debug)]
enum Break {
    /// Connecting is refused for some attempts.
    Refused,
    /// Nothing passes, and then everything arrives at once.
    Hung,
    /// The request does not arrive, since its connection is reset,
    Rejected,
    /// or closed.
    Lost,
    /// The request arrives when another one under its key is answered.
    Late,
    /// The connection is closed while the run goes on.
    Running,
    /// The answer is there, and its connection is reset,
    Reset,
    /// or closed,
    Closed,
    /// or closed in the middle of it,
    Halved,
    /// or silent.
    Silent,
}

impl Break {
    const ALL: [Self; 10] = [
        Self::Refused,
        Self::Hung,
        Self::Rejected,
        Self::Lost,
        Self::Late,
        Self::Running,
        Self::Reset,
        Self::Closed,
        Self::Halved,
        Self::Silent,
    ];

    /// Orders, while the way fails.
    async fn order(self, caller: &Caller, proxy: &Proxy, provider: &Provider) -> Ordered {
        let (shop, item) = (proxy.address(), caller.item());
        let its = Request::With(&item);
        let ordering = match self {
            Self::Refused => {
                proxy.cut().await;
                let ordering = caller.order(shop);
                caller.ended(3).await;
                proxy.mend().await;
                ordering
            }
            Self::Hung => {
                let hung = proxy.hang();
                let ordering = caller.order(shop);
                hung.struck().await;
                caller.ended(2).await;
                proxy.mend().await;
                ordering
            }
            Self::Rejected => {
                proxy.reset_request(its);
                caller.order(shop)
            }
            Self::Lost => {
                let held = proxy.hold_request(its);
                let ordering = caller.order(shop);
                held.struck().await;
                proxy.cut().await;
                proxy.mend().await;
                ordering
            }
            Self::Late => {
                let held = proxy.hold_request(its);
                let key = IdempotencyKey::random();
                let ordering = caller.beside().order_under(key.clone(), shop);
                held.struck().await;
                let answered = caller.order_under(key, shop).await.unwrap();
                held.release().await;
                let late = ordering.await.unwrap();
                assert_eq!(late.body, answered.body);
                return late;
            }
            Self::Running => {
                let gate = provider.holds();
                let ordering = caller.order(shop);
                gate.entered().await;
                proxy.cut().await;
                proxy.mend().await;
                // The second is told that the order is in flight.
                caller.ended(2).await;
                gate.release(EVERYONE);
                ordering
            }
            Self::Reset => {
                proxy.reset_reply(its);
                caller.order(shop)
            }
            Self::Closed => {
                proxy.drop_reply(its);
                caller.order(shop)
            }
            Self::Halved => {
                proxy.halve_reply(its);
                caller.order(shop)
            }
            Self::Silent => {
                proxy.silence_reply(its);
                caller.order(shop)
            }
        };
        ordering.await.unwrap()
    }

    fn is_after_the_run(self) -> bool {
        matches!(self, Self::Late | Self::Reset | Self::Closed | Self::Halved | Self::Silent)
    }
}

/// Orders once for each break, over both versions of HTTP at once.
pub(crate) async fn strike(store: impl Fn(&str) -> String) {
    join_all(Version::BOTH.map(|version| strike_over(version, store(&format!("{version:?}"))))).await;
}

async fn strike_over(version: Version, store: String) {
    let premises = Premises::new(store, version).await;
    let _shop = premises.open(&[]).await;
    let proxy = Proxy::start(premises.address).await;
    for (before, broken) in Break::ALL.into_iter().enumerate() {
        let case = format!("{version:?} {broken:?}");
        let caller = Caller::impatient(version);
        // HTTP/2 says more than the answer on a connection that is new.
        assert_eq!(caller.orders(proxy.address()).await, "0", "{case}");
        let ordered = broken.order(&caller, &proxy, &premises.provider).await;
        let report = &ordered.report;
        assert_eq!(ordered.status, 201, "{case}: {report}");
        match broken.is_after_the_run() {
            true => assert!(report.is_replayed(), "{case}: {report}"),
            false => assert!(report.attempts().len() > 1, "{case}: the fault did not strike"),
        }
        assert_eq!(caller.orders(premises.address).await, "1", "{case}");
        premises.assert_charged(before + 1, &case);
    }
}
