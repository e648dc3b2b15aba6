//! What an axum service serves by itself, and with the layer over a Redis store: 32 clients on one connection each, each
//! sending its next request when it has its answer.
//!
//! 256 bytes in, 512 bytes out. The clients, the service and Redis share the machine. Aims, as parts of what the service
//! serves bare in the same run: first requests 0.42, replays 0.75.

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use idempotency_layer::{IdempotencyLayer, RedisStore};
use idempotency_tests::redis::RedisServer;
use idempotency_tests::wire::Served;
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
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let bare = rate(&bare, Keys::Fresh).await;
        let () = redis.command(&["FLUSHALL"]).await;
        let first = rate(&layered, Keys::Fresh).await;
        let replays = rate(&layered, Keys::Same).await;
        rates.push([bare, first, replays]);
    }
    let all = |at: usize| median(rates.iter().map(|round| round[at]));
    let part = |at: usize| median(rates.iter().map(|round| round[at] / round[0]));
    println!("bare axum: {:.0}/s", all(0));
    println!("first: {:.0}/s, {:.2} of bare (aim 0.42)", all(1), part(1));
    println!("replays: {:.0}/s, {:.2} of bare (aim 0.75)", all(2), part(2));
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

/// Answers per second.
async fn rate(served: &Served, keys: Keys) -> f64 {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client::connect(served, number).await;
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
struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    /// Where the key is in the request.
    key: usize,
    number: u64,
    answer: Vec<u8>,
}

impl Client {
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
const CLIENTS: u64 = 32;
const KEY: usize = 20;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(500);
