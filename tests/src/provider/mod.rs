//! A payment provider on a real socket that keeps a ledger, honours idempotency keys as the documented ones do, and fails in
//! every way that a network and a server can.
//!
//! 1. `POST /charges` with `{"amount": 1050, "currency": "EUR"}` answers 201 and `{"charge": "ch_1", …}` and adds a line to the
//!    [`ledger`](Provider::ledger). Without a key each request does.
//! 2. A key that is known gets the same answer with `Idempotent-Replayed: true`, 409 with `Retry-After: 1` while it is at
//!    work, 422 for another payload.
//! 3. Any other request is answered 200 and moves nothing.
//! 4. A [`Fault`] strikes one request: the first in the [script](Provider::script) strikes the first that arrives. It strikes
//!    before the charge or after it, and the ledger says which.
//! 5. A charge that has begun is made, whatever becomes of its connection.
//! 6. All that [arrived](Provider::received) is remembered, byte for byte.
//!
//! It speaks one version of HTTP, in clear text. It has no time limits, and it knows nothing of accounts or credentials. Over
//! HTTP/1.1 it does not expect pipelined requests.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), reqwest::Error> {
//! use idempotency_tests::provider::{Ending, Fault, Provider};
//! use idempotency_tests::wire::Version;
//!
//! let provider = Provider::start(Version::Http1).await;
//! provider.script([Fault::committed(Ending::Reset)]);
//!
//! let pay = || {
//!     let charge = serde_json::json!({ "amount": 1050, "currency": "EUR" });
//!     reqwest::Client::new().post(provider.charges()).header("idempotency-key", "order-4711").json(&charge).send()
//! };
//! assert!(pay().await.is_err(), "the client does not know whether it happened");
//! assert_eq!(pay().await?.headers()["idempotent-replayed"], "true");
//! assert_eq!(provider.ledger().len(), 1);
//! # Ok(())
//! # }
//! ```

mod answer;
mod books;
mod desk;
mod fault;
mod http1;
mod http2;
mod line;
mod received;

pub use answer::Answer;
pub use books::Charge;
pub use fault::{Ending, Fault};
pub use received::Received;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::door::Door;
use crate::gate::Gate;
use crate::patience::PATIENCE;
use crate::wire::Version;
use books::Keys;
use desk::{Desk, Script};
use line::Line;

/// A running provider. It lives in the runtime that started it, until it is dropped.
pub struct Provider {
    version: Version,
    door: Door,
    desk: Arc<Desk>,
}

impl Provider {
    /// Starts one that has no faults.
    pub async fn start(version: Version) -> Self {
        let desk = Arc::new(Desk::default());
        let behind = Arc::clone(&desk);
        let door = Door::start(move |stream| {
            let (line, desk) = (Line::new(stream), Arc::clone(&behind));
            async move {
                match (desk.accept(), version) {
                    (None, _) => line.reset(),
                    (Some(connection), Version::Http1) => http1::serve(line, desk, connection).await,
                    (Some(connection), Version::Http2) => http2::serve(line, desk, connection).await,
                }
            }
        });
        Self { version, door: door.await, desk }
    }

    /// Where it listens, which stays so while it is down.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Where charges are asked for.
    #[must_use]
    pub fn charges(&self) -> String {
        format!("{}/charges", self.url())
    }

    /// Strikes the next requests, one fault each in their order of arrival, `None` for one that goes well. Afterwards there is
    /// none. It takes the place of every fault that was asked for before.
    ///
    /// # Panics
    ///
    /// When one of them does not exist, or not on this version of HTTP.
    pub fn script(&self, faults: impl IntoIterator<Item = impl Into<Option<Fault>>>) {
        let next = faults.into_iter().map(|fault| self.checked(fault.into()));
        let next = next.collect();
        *self.desk.script() = Script { next, then: None };
    }

    /// Strikes each request from now on. It takes the place of every fault that was asked for before.
    ///
    /// # Panics
    ///
    /// As [`script`](Self::script).
    pub fn always(&self, fault: Fault) {
        let then = self.checked(Some(fault));
        *self.desk.script() = Script { then, ..Script::default() };
    }

    /// Ends the faults: those that have not struck never will.
    pub fn mend(&self) {
        *self.desk.script() = Script::default();
    }

    /// From now on each handler that has its key stands at this gate before it charges.
    #[must_use = "a gate that nobody opens holds every handler"]
    pub fn holds(&self) -> Gate {
        let gate = Gate::closed();
        self.desk.work().gate = Some(gate.clone());
        gate
    }

    /// From now on each handler that has its key takes so long before it charges, on tokio's clock.
    pub fn work_for(&self, duration: Duration) {
        self.desk.work().takes = duration;
    }

    /// From now on each request charges, whatever its key.
    pub fn ignores_keys(&self) {
        self.desk.books().keys = Keys::Ignores;
    }

    /// From now on a known key gets a 409 of the domain, without `Retry-After`, and never a replay.
    pub fn rejects_duplicates(&self) {
        self.desk.books().keys = Keys::Rejects;
    }

    /// Closes all connections and refuses new ones, which is so when this returns. Handlers go on.
    pub async fn down(&self) {
        self.door.shut().await;
    }

    /// Lets clients in again, at the same address.
    pub async fn up(&self) {
        self.door.open().await;
    }

    /// What has arrived, in its order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.desk.received().borrow().clone()
    }

    /// Waits until so many requests have arrived since the start.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub async fn arrived(&self, requests: usize) {
        let mut received = self.desk.received();
        let arrived = timeout(PATIENCE, received.wait_for(|received| received.len() >= requests));
        // Its sender is in the desk.
        drop(arrived.await.expect("no further request arrives").expect("never closed"));
    }

    /// The money that was moved, in its order.
    #[must_use]
    pub fn ledger(&self) -> Vec<Charge> {
        self.desk.books().ledger().to_owned()
    }

    /// How many connections were accepted, those included that were reset unheard.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.desk.connections()
    }

    fn checked(&self, fault: Option<Fault>) -> Option<Fault> {
        if let Some(fault) = &fault {
            fault.check(self.version);
        }
        fault
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("version", &self.version).field("door", &self.door).finish_non_exhaustive()
    }
}
