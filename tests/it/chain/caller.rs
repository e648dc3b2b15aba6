//! Who orders: a client that goes on under one key until it has an answer, and of whose attempts the test learns.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use client_retry::{Backoff, IdempotencyKey, IdempotentRetry, RetryBudget, RetryReport};
use http::{Extensions, Method};
use idempotency_tests::shop::Order;
use idempotency_tests::wire::Version;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::premises::PRICE;
use crate::client::bare;
use crate::request::PATIENCE;

/// An account with a client.
pub(crate) struct Caller {
    account: String,
    version: Version,
    client: ClientWithMiddleware,
    ended: watch::Sender<usize>,
}

/// What a caller has in the end.
pub(crate) struct Ordered {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) report: RetryReport,
}

impl Caller {
    /// One that waits for each of its attempts longer than any run here lasts.
    pub(crate) fn new(version: Version) -> Self {
        Self::of(account(), version, PATIENCE)
    }

    /// One that waits so short that silence costs a test little.
    pub(crate) fn impatient(version: Version) -> Self {
        Self::of(account(), version, Duration::from_millis(700))
    }

    /// Another client of the same account, a patient one.
    pub(crate) fn beside(&self) -> Self {
        Self::of(self.account.clone(), self.version, PATIENCE)
    }

    fn of(account: String, version: Version, attempt: Duration) -> Self {
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(200)).unwrap();
        let retry = IdempotentRetry::builder()
            .max_attempts(10_000)
            .max_polls(10_000)
            .backoff(backoff)
            .throttled_backoff(backoff)
            .attempt_timeout(attempt)
            .total_timeout(3 * PATIENCE)
            .budget(RetryBudget::unlimited())
            .build()
            .unwrap();
        let ended = watch::Sender::new(0);
        let client = bare(version)
            // HTTP/2 would make every further attempt on a connection that is silent.
            .http2_keep_alive_interval(attempt)
            .http2_keep_alive_timeout(attempt)
            .build()
            .unwrap();
        let client = ClientBuilder::new(client).with(retry).with(Ended(ended.clone())).build();
        Self { account, version, client, ended }
    }

    /// Orders, beside the test.
    pub(crate) fn order(&self, shop: SocketAddr) -> JoinHandle<Ordered> {
        self.order_under(IdempotencyKey::random(), shop)
    }

    /// Orders under a key.
    pub(crate) fn order_under(&self, key: IdempotencyKey, shop: SocketAddr) -> JoinHandle<Ordered> {
        let order = Order { item: self.item(), amount: PRICE };
        let request = self.client.post(orders(shop)).header("x-account", &self.account).with_extension(key);
        let request = request.header(CONTENT_TYPE, "application/json").body(serde_json::to_string(&order).unwrap());
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            let report = response.extensions().get::<RetryReport>().expect("every response has a report").clone();
            Ordered { status: response.status().as_u16(), report, body: response.text().await.unwrap() }
        })
    }

    /// What stands in the body of its orders, and nowhere else.
    pub(crate) fn item(&self) -> String {
        format!("a chair for {}", self.account)
    }

    /// How many orders the shop has from it.
    pub(crate) async fn orders(&self, shop: SocketAddr) -> String {
        let asked = self.client.get(orders(shop)).header("x-account", &self.account);
        asked.send().await.unwrap().text().await.unwrap()
    }

    /// Waits until so many attempts to order have ended.
    pub(crate) async fn ended(&self, attempts: usize) {
        let mut ended = self.ended.subscribe();
        let ended = timeout(PATIENCE, ended.wait_for(|ended| *ended >= attempts)).await;
        // Its sender is here.
        drop(ended.expect("no further attempt ends").expect("never closed"));
    }
}

/// One that nobody else has.
fn account() -> String {
    static ACCOUNTS: AtomicU32 = AtomicU32::new(0);
    format!("account-{}", ACCOUNTS.fetch_add(1, Ordering::SeqCst))
}

fn orders(shop: SocketAddr) -> String {
    format!("http://{shop}/orders")
}

/// Counts the attempts to order that have ended, however they did.
struct Ended(watch::Sender<usize>);

#[async_trait]
impl Middleware for Ended {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let counts = Counts { is_order: request.method() == Method::POST, ended: &self.0 };
        let outcome = next.run(request, extensions).await;
        drop(counts);
        outcome
    }
}

/// Counts when it is dropped, as it is when the attempt takes too long.
struct Counts<'a> {
    is_order: bool,
    ended: &'a watch::Sender<usize>,
}

impl Drop for Counts<'_> {
    fn drop(&mut self) {
        if self.is_order {
            self.ended.send_modify(|ended| *ended += 1);
        }
    }
}
