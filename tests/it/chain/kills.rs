//! The shop is killed (SIGKILL) and started again, with nothing but its store, while the caller goes on asking.

use std::iter::{once, repeat_n};

use futures_util::{StreamExt, stream};
use idempotency_tests::failpoint::Point;
use idempotency_tests::gate::Gate;
use idempotency_tests::provider::{Ending, Fault, Provider};
use idempotency_tests::server::Server;
use idempotency_tests::wire::Version;

use super::caller::Caller;
use super::premises::Premises;
use super::{EVERYONE, sqlite};
use crate::request::again_until;

/// E3. Fails when `machine::claim` never takes over a lease that has lapsed, `Shared::propagation` makes the attempt
/// part of the scope, or `propagation` does not ask for the current one.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_service_is_killed_each_order_is_made_and_charged_once() {
    let folder = tempfile::tempdir().unwrap();
    kill(|name| sqlite(&folder, name)).await;
}

/// How far an order has come when its process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// A request is at this point of the shop.
    At(Point),
    /// The provider has the first charge's key, and charges when the process is dead.
    Charging,
    /// So many charges were made, and the last was not answered.
    Unanswered(usize),
}

impl Moment {
    const ALL: [Self; 9] = [
        Self::At(Point::AfterClaim),
        Self::At(Point::Handler),
        Self::Charging,
        Self::Unanswered(1),
        Self::Unanswered(2),
        Self::At(Point::Charged),
        Self::At(Point::BeforeRecord),
        Self::At(Point::AfterRecord),
        Self::At(Point::Answer),
    ];

    /// Has the provider stop there.
    fn arm(self, provider: &Provider) -> Gate {
        match self {
            Self::At(_) => Gate::open(),
            Self::Charging => provider.holds(),
            Self::Unanswered(last) => {
                let silence = Some(Fault::committed(Ending::Silence));
                provider.script(once(None).take(last - 1).chain(repeat_n(silence, EVERYONE)));
                Gate::open()
            }
        }
    }

    /// Starts a shop that stops there.
    async fn open(self, premises: &Premises) -> Server {
        match self {
            Self::At(point) => premises.open(&[LEASE, &["--failpoint", &point.name()]].concat()).await,
            _ => premises.open(LEASE).await,
        }
    }

    /// Waits until an order has come so far.
    async fn come(self, shop: &mut Server, provider: &Provider, gate: &Gate) {
        match self {
            Self::At(_) => drop(shop.line_after("failpoint ").await),
            Self::Charging => gate.entered().await,
            Self::Unanswered(charges) => {
                again_until(async || provider.ledger().len(), |made| *made == charges).await;
            }
        }
    }

    fn is_recorded(self) -> bool {
        matches!(self, Self::At(Point::AfterRecord | Point::Answer))
    }
}

/// Kills a shop at each moment, some at a time.
pub(crate) async fn kill(store: impl Fn(&str) -> String) {
    let moments = Version::BOTH.into_iter().flat_map(|version| Moment::ALL.map(|moment| (version, moment)));
    let kills = moments.enumerate().map(|(at, (version, moment))| kill_at(moment, version, store(&at.to_string())));
    stream::iter(kills).buffer_unordered(AT_ONCE).collect::<()>().await;
}

async fn kill_at(moment: Moment, version: Version, store: String) {
    let case = format!("{version:?} {moment:?}");
    let premises = Premises::new(store, version).await;
    let provider = &premises.provider;
    let gate = moment.arm(provider);
    let mut doomed = moment.open(&premises).await;
    let caller = Caller::new(version);
    let ordering = caller.order(premises.address);
    moment.come(&mut doomed, provider, &gate).await;
    doomed.kill().await;
    assert!(!ordering.is_finished(), "{case}: a process that was killed has answered");

    provider.mend();
    gate.release(EVERYONE);
    let _heir = premises.open(LEASE).await;
    let ordered = ordering.await.unwrap();
    assert_eq!(ordered.status, 201, "{case}: {}", ordered.report);
    assert_eq!(ordered.report.is_replayed(), moment.is_recorded(), "{case}: {}", ordered.report);
    assert_eq!(caller.orders(premises.address).await, "1", "{case}");
    premises.assert_charged(1, &case);
}

/// Short enough to wait for, long enough for a process to live with.
const LEASE: &[&str] = &["--lease", "1000"];
const AT_ONCE: usize = 6;
