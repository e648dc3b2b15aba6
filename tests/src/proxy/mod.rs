//! A TCP proxy between a client and its server that counts round trips, and loses what a network may lose.
//!
//! 1. It knows bytes and no protocol, but for what [`Request::Runs`] needs of PostgreSQL's. A request is what it reads
//!    at once from a client; a round trip is counted when the server sends something after a request was sent on. What
//!    is pipelined in one write is one round trip, and a push that nobody asked for is none.
//! 2. A fault strikes once, on the first request it is for, and the test can wait until it has. Of several that wait,
//!    the one that was asked for first strikes.
//! 3. [`mend`](Proxy::mend) ends everything that is wrong, except on connections that are silent: those stay so.
//!
//! It does not tell apart what is on one connection at the same time: a swallowed reply is the first that comes after
//! the request, so a test that has several under way on one connection does not know whose it was. Requests over 64 KiB
//! are read in pieces and may be counted as several round trips.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use idempotency_tests::proxy::{Proxy, Request};
//! use idempotency_tests::redis::RedisServer;
//!
//! let redis = RedisServer::start().await;
//! let proxy = Proxy::start(redis.address()).await;
//! let client = redis::Client::open(format!("redis://{}", proxy.address())).unwrap();
//! let mut connection = client.get_multiplexed_async_connection().await.unwrap();
//!
//! proxy.drop_reply(Request::With("INCR"));
//! let lost = redis::cmd("INCR").arg("k").query_async::<i64>(&mut connection).await;
//! assert!(lost.is_err(), "the client does not know whether it happened");
//! assert_eq!(redis.command::<i64>(&["GET", "k"]).await, 1);
//! # }
//! ```

mod fault;
mod line;
mod statements;

pub use fault::{Fault, Held, Request};

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::door::Door;
use fault::{Armed, Event, Kind};

/// A proxy in front of one server. It lives in the runtime that started it, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    door: Door,
    network: Arc<Network>,
}

/// What is between the clients and the server, as all connections see it.
#[derive(Debug)]
struct Network {
    upstream: SocketAddr,
    round_trips: AtomicU64,
    passage: watch::Sender<Passage>,
    armed: Mutex<VecDeque<Armed>>,
}

/// What every byte passes through.
#[derive(Clone, Debug)]
struct Passage {
    /// Before each reply.
    delay: Duration,
    /// While nothing passes.
    hang: Option<Event>,
}

impl Proxy {
    /// Starts one in front of a server, which need not be there yet.
    pub async fn start(upstream: SocketAddr) -> Self {
        let passage = watch::Sender::new(Passage { delay: Duration::ZERO, hang: None });
        let network = Arc::new(Network { upstream, round_trips: AtomicU64::new(0), passage, armed: Mutex::default() });
        let behind = Arc::clone(&network);
        Self { door: Door::start(move |client| connect(client, Arc::clone(&behind))).await, network }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// How many round trips there were since the start or the last reset.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.network.round_trips.load(Ordering::SeqCst)
    }

    /// Counts from zero, and gives the count so far.
    pub fn reset_round_trips(&self) -> u64 {
        self.network.round_trips.swap(0, Ordering::SeqCst)
    }

    /// Closes all connections and refuses new ones, which is so when this returns.
    pub async fn cut(&self) {
        self.door.shut().await;
    }

    /// Ends the faults: listens again, goes on with what hung, without delay, and forgets what was armed and has not
    /// struck. What is held stays held.
    pub async fn mend(&self) {
        self.network.armed().clear();
        self.network.passage.send_replace(Passage { delay: Duration::ZERO, hang: None });
        self.door.open().await;
    }

    /// From now on each reply takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.network.passage.send_modify(|passage| passage.delay = delay);
    }

    /// From now on connections stay open and nothing passes, in either direction. What was sent meanwhile arrives once
    /// it is mended, also when its client has gone. It strikes when there are bytes that do not pass.
    pub fn hang(&self) -> Fault {
        let struck = Event::new();
        self.network.passage.send_modify(|passage| passage.hang = Some(struck.clone()));
        Fault { struck }
    }

    /// Lets the server have a request, swallows its reply, and closes the connection: the client cannot know whether it
    /// happened. It strikes when the reply is swallowed, so that it has happened.
    pub fn drop_reply(&self, to: Request<'_>) -> Fault {
        self.arm(Armed::new(to, Kind::Drop))
    }

    /// Keeps a request from the server, and resets the client's connection (TCP RST): nothing has happened, and the
    /// client does not know it.
    pub fn reset_request(&self, request: Request<'_>) -> Fault {
        self.arm(Armed::new(request, Kind::Refuse))
    }

    /// As [`drop_reply`](Self::drop_reply), and the client's connection is reset (TCP RST) instead.
    pub fn reset_reply(&self, to: Request<'_>) -> Fault {
        self.arm(Armed::new(to, Kind::Reset))
    }

    /// Lets the server have a request, passes half of what comes of its reply at once, and closes the connection.
    pub fn halve_reply(&self, to: Request<'_>) -> Fault {
        self.arm(Armed::new(to, Kind::Halve))
    }

    /// Lets the server have a request, swallows its reply, and is silent on the connection from then on, which stays
    /// open.
    pub fn silence_reply(&self, to: Request<'_>) -> Fault {
        self.arm(Armed::new(to, Kind::Silence))
    }

    /// Keeps a request from the server until it is released, as a network does that delivers it after its duplicate.
    pub fn hold_request(&self, request: Request<'_>) -> Held {
        let (released, answered) = (Event::new(), Event::new());
        let kind = Kind::Hold { released: released.clone(), answered: answered.clone() };
        let Fault { struck } = self.arm(Armed::new(request, kind));
        Held { struck, released, answered }
    }

    fn arm(&self, armed: Armed) -> Fault {
        let struck = armed.struck.clone();
        self.network.armed().push_back(armed);
        Fault { struck }
    }
}

/// A client whose server is not there is closed.
async fn connect(client: TcpStream, network: Arc<Network>) {
    if let Ok(server) = TcpStream::connect(network.upstream).await {
        line::carry(client, server, &network).await;
    }
}

impl Network {
    fn armed(&self) -> MutexGuard<'_, VecDeque<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that this request is for, if there is one.
    fn strike(&self, request: &[u8], runs: &[Vec<u8>]) -> Option<Armed> {
        let mut armed = self.armed();
        let position = armed.iter().position(|armed| armed.is_for(request, runs))?;
        armed.remove(position)
    }

    /// Waits while nothing passes.
    async fn passable(&self) {
        let mut passage = self.passage.subscribe();
        // Its sender is here.
        let passes = passage.wait_for(|passage| {
            if let Some(struck) = &passage.hang {
                struck.happen();
            }
            passage.hang.is_none()
        });
        drop(passes.await.expect("never closed"));
    }

    fn delay(&self) -> Duration {
        self.passage.borrow().delay
    }
}
