//! Where a shop is: its address, its store and its provider, which stay the same when it is killed and another takes
//! its place.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;

use idempotency_tests::port;
use idempotency_tests::provider::Provider;
use idempotency_tests::server::Server;
use idempotency_tests::shop::DELIVERY;
use idempotency_tests::wire::Version;

/// Everything about a shop but its process.
pub(crate) struct Premises {
    pub(crate) address: SocketAddr,
    pub(crate) provider: Provider,
    store: String,
    version: Version,
}

impl Premises {
    /// A shop that asks its provider over this version of HTTP.
    pub(crate) async fn new(store: String, version: Version) -> Self {
        let address = port::local(port::free());
        Self { address, provider: Provider::start(version).await, store, version }
    }

    /// Starts a process.
    pub(crate) async fn open(&self, options: &[&str]) -> Server {
        let (charges, listen) = (self.provider.charges(), self.address.to_string());
        let mut arguments = vec!["--store", &self.store, "--charges", &charges, "--listen", &listen];
        if self.version == Version::Http2 {
            arguments.push("--http2");
        }
        arguments.extend(options);
        Server::start(Path::new(env!("CARGO_BIN_EXE_shop")), arguments).await
    }

    /// The price and the delivery of so many orders were charged, and nothing else, each under a key of its own.
    pub(crate) fn assert_charged(&self, orders: usize, case: &str) {
        let ledger = self.provider.ledger();
        let keys: HashSet<_> = ledger.iter().filter_map(|charge| charge.key.clone()).collect();
        let of = |amount| ledger.iter().filter(|charge| charge.amount == amount).count();
        let counts = (ledger.len(), of(PRICE), of(DELIVERY), keys.len());
        assert_eq!(counts, (2 * orders, orders, orders, 2 * orders), "{case}");
    }
}

/// What each order costs without its delivery.
pub(crate) const PRICE: i64 = 1050;
