//! What an axum service serves by itself, and with the layer over a Redis store: 32 clients on one connection each, each
//! sending its next request when it has its answer.
//!
//! 256 bytes in, 512 bytes out. The clients, the service and Redis share the machine. Aims, as parts of what the service
//! serves bare in the same run: first requests 0.42, replays 0.75.
//!
//! Beside them, what the same service serves when its handler sends the bare commands that are the floors of the verbs, and
//! nothing decides anything: what a request costs that goes to Redis at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use idempotency_layer::{IdempotencyLayer, RedisStore};
use idempotency_tests::redis::RedisServer;
use idempotency_tests::wire::Served;
use redis::Client;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::median;

/// Measures all three in turn, again and again, and prints the medians.
pub(crate) async fn compare() {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(&redis.url()).await.expect("a store");
    let bare = Served::start(router()).await;
    let layered = Served::start(router().layer(IdempotencyLayer::new(store).anonymous(true))).await;
    let client = Client::open(redis.url()).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let sets = Served::start(sending(connection.clone(), two_sets)).await;
    let gets = Served::start(sending(connection, one_get)).await;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let bare = rate(&bare, Keys::Fresh).await;
        let () = redis.command(&["FLUSHALL"]).await;
        let first = rate(&layered, Keys::Fresh).await;
        let replays = rate(&layered, Keys::Same).await;
        let sets = rate(&sets, Keys::Fresh).await;
        let () = redis.command(&["SET", ONE, &"r".repeat(RECORD)]).await;
        let gets = rate(&gets, Keys::Same).await;
        rates.push([bare, first, replays, sets, gets]);
    }
    let all = |at: usize| median(rates.iter().map(|round| round[at]));
    let part_of = |at: usize, whole: usize| median(rates.iter().map(|round| round[at] / round[whole]));
    println!("bare axum: {:.0}/s", all(0));
    println!("with two SETs: {:.0}/s, {:.2} of bare", all(3), part_of(3, 0));
    println!("with one GET: {:.0}/s, {:.2} of bare", all(4), part_of(4, 0));
    let (of_bare, of_sets) = (part_of(1, 0), part_of(1, 3));
    println!("first: {:.0}/s, {of_bare:.2} of bare (aim 0.42), {of_sets:.2} of that with two SETs", all(1));
    let (of_bare, of_get) = (part_of(2, 0), part_of(2, 4));
    println!("replays: {:.0}/s, {of_bare:.2} of bare (aim 0.75), {of_get:.2} of that with one GET", all(2));
}

/// Which keys a client sends.
#[derive(Clone, Copy)]
enum Keys {
    /// One that nobody has sent, each time.
    Fresh,
    /// Its own, which it has sent before.
    Same,
}

fn router() -> Router {
    Router::new().route("/payments", post(|| async { RESPONSE }))
}

/// A service that sends commands before each answer.
fn sending<F>(connection: MultiplexedConnection, send: fn(MultiplexedConnection) -> F) -> Router
where
    F: Future<Output = ()> + Send + 'static,
{
    let handler = move || {
        let sent = send(connection.clone());
        async move {
            sent.await;
            RESPONSE
        }
    };
    Router::new().route("/payments", post(handler))
}

/// The bytes of a record as a claim and as its completion leaves it.
async fn two_sets(mut connection: MultiplexedConnection) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let key = format!("sets:{:071}", COUNT.fetch_add(1, Ordering::Relaxed));
    for bytes in [HEAD, RECORD] {
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&[b'r'; RECORD][..bytes]).arg("PX").arg(86_400_000);
        let () = set.query_async(&mut connection).await.expect("an answer");
    }
}

/// A record with a response.
async fn one_get(mut connection: MultiplexedConnection) {
    let record: Vec<u8> = redis::cmd("GET").arg(ONE).query_async(&mut connection).await.expect("an answer");
    assert_eq!(record.len(), RECORD);
}

/// Answers per second.
async fn rate(served: &Served, keys: Keys) -> f64 {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Caller::connect(served, number).await;
        if matches!(keys, Keys::Same) {
            client.fetch(0).await;
        }
        clients.push(client);
    }
    let started = Instant::now();
    let working: JoinSet<u64> = clients.into_iter().map(|client| client.work(keys, started + ROUND)).collect();
    let answers: u64 = working.join_all().await.into_iter().sum();
    f64::from(u32::try_from(answers).expect("a short round")) / started.elapsed().as_secs_f64()
}

/// One connection, with as little of HTTP as is needed, so that what is measured is the service.
struct Caller {
    socket: TcpStream,
    request: Vec<u8>,
    /// Where the key is in the request.
    key: usize,
    number: u64,
    answer: Vec<u8>,
}

impl Caller {
    async fn connect(served: &Served, number: u64) -> Self {
        let socket = served.connect().await;
        socket.set_nodelay(true).expect("an open socket");
        let head = "POST /payments HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                    authorization: Bearer 0123456789abcdef\r\nidempotency-key: ";
        let body = [b'x'; 256];
        let mut request = head.as_bytes().to_vec();
        request.extend([b'0'; KEY]);
        request.extend(format!("\r\ncontent-length: {}\r\n\r\n", body.len()).bytes());
        request.extend(body);
        Self { socket, request, key: head.len(), number, answer: vec![0; 4096] }
    }

    async fn work(mut self, keys: Keys, until: Instant) -> u64 {
        let mut answers = 0;
        while Instant::now() < until {
            answers += 1;
            self.fetch(if matches!(keys, Keys::Fresh) { answers } else { 0 }).await;
        }
        answers
    }

    /// Sends a request under one of the client's keys, and reads the answer whole.
    async fn fetch(&mut self, key: u64) {
        let key = format!("{:08}-{key:011}", self.number);
        self.request[self.key..self.key + KEY].copy_from_slice(key.as_bytes());
        self.socket.write_all(&self.request).await.expect("a service that reads");
        let mut read = 0;
        loop {
            read += self.socket.read(&mut self.answer[read..]).await.expect("a service that answers");
            assert!(read > 0, "the service closed the connection");
            let answer = &self.answer[..read];
            // The body is the last of it.
            if answer.ends_with(RESPONSE.as_bytes()) {
                assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(answer));
                return;
            }
        }
    }
}

const RESPONSE: &str = match std::str::from_utf8(&[b'y'; 512]) {
    Ok(text) => text,
    Err(_) => panic!("text"),
};
/// A key as long as the store's.
const ONE: &str = "one:000000000000000000000000000000000000000000000000000000000000000000000000";
const HEAD: usize = 130;
const RECORD: usize = 705;
const CLIENTS: u64 = 32;
const KEY: usize = 20;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(500);
