//! The proxy that tests stand on: what it counts, and that each of its faults is the one that it says.

use std::future::Future;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant};

use idempotency_tests::port;
use idempotency_tests::proxy::{Proxy, Request};
use idempotency_tests::redis::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Pipeline, RedisError, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// A server behind its proxy.
struct Behind {
    redis: RedisServer,
    proxy: Proxy,
}

impl Behind {
    async fn start() -> Self {
        let redis = RedisServer::start().await;
        let proxy = Proxy::start(redis.address()).await;
        Self { redis, proxy }
    }

    /// A connection through the proxy whose client waits so long for each reply.
    async fn connect_waiting(&self, patience: Duration) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
        let client = Client::open(format!("redis://{}", self.proxy.address()))?;
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn connect(&self) -> MultiplexedConnection {
        self.connect_waiting(Duration::from_secs(20)).await.unwrap()
    }

    /// What the server has, as it says itself.
    async fn count(&self) -> Option<i64> {
        self.redis.command(&["GET", "k"]).await
    }
}

async fn increment(mut connection: MultiplexedConnection) -> Result<i64, RedisError> {
    cmd("INCR").arg("k").query_async(&mut connection).await
}

/// Sends a request whose reply the test waits for later.
fn sending<T: Send + 'static>(request: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(request)
}

/// Fails when `replies` counts each time it reads, or `requests` counts instead.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_one_round_trip_and_a_large_reply_too() {
    let behind = Behind::start().await;
    let mut connection = behind.connect().await;
    behind.proxy.reset_round_trips();
    for count in 1..=3 {
        increment(connection.clone()).await.unwrap();
        assert_eq!(behind.proxy.round_trips(), count);
    }

    let mut pipeline = Pipeline::new();
    for _ in 0..10 {
        pipeline.cmd("INCR").arg("k").ignore();
    }
    pipeline.query_async::<()>(&mut connection).await.unwrap();
    assert_eq!(behind.proxy.reset_round_trips(), 4);
    assert_eq!(behind.count().await, Some(13));

    // It is longer than what is read at once.
    let _: () = behind.redis.command(&["SETRANGE", "large", "1000000", "end"]).await;
    let large: Vec<u8> = cmd("GET").arg("large").query_async(&mut connection).await.unwrap();
    assert_eq!((large.len(), behind.proxy.round_trips()), (1_000_003, 1));
}

/// Fails when `cut` leaves the connections, by a task for each that is not in the set; when it leaves the listener; and
/// when `mend` does not listen.
#[tokio::test(flavor = "multi_thread")]
async fn cut_off_connections_end_and_none_begins_before_it_is_mended() {
    let behind = Behind::start().await;
    let connection = behind.connect().await;
    increment(connection.clone()).await.unwrap();
    behind.proxy.cut().await;
    assert!(increment(connection).await.unwrap_err().is_unrecoverable_error());
    let refused = behind.connect_waiting(Duration::from_secs(20)).await.unwrap_err();
    assert!(refused.is_connection_refusal(), "{refused}");
    behind.proxy.mend().await;
    assert_eq!(increment(behind.connect().await).await.unwrap(), 2);
}

/// Fails when `Door::bind` gives up at once.
#[tokio::test(flavor = "multi_thread")]
async fn it_has_its_port_again_although_processes_are_being_started() {
    let proxy = Proxy::start(port::local(port::free())).await;
    // Each ends by itself: a test that fails waits for them.
    let starting: Vec<_> = (0..4)
        .map(|_| spawn_blocking(|| (0..200).for_each(|_| assert!(Command::new("true").status().unwrap().success()))))
        .collect();
    while !starting.iter().all(JoinHandle::is_finished) {
        proxy.cut().await;
        proxy.mend().await;
    }
}

/// Fails when `requests` does not wait until it is passable, and when `mend` keeps the hang.
#[tokio::test(flavor = "multi_thread")]
async fn what_hangs_does_not_arrive_until_it_is_mended() {
    let behind = Behind::start().await;
    let connection = behind.connect().await;
    let hung = behind.proxy.hang();
    let mut answer = sending(increment(connection));
    hung.struck().await;
    assert!(timeout(Duration::from_millis(50), &mut answer).await.is_err());
    assert_eq!(behind.count().await, None);
    behind.proxy.mend().await;
    assert_eq!(answer.await.unwrap().unwrap(), 1);
}

/// Fails when `replies` does not wait until it is passable.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_hangs_whose_request_had_passed() {
    let behind = Behind::start().await;
    let mut connection = behind.connect().await;
    let answer =
        sending(async move { cmd("BLPOP").arg("list").arg(0).query_async::<(String, String)>(&mut connection).await });
    // The server has the request; the reply is yet to come.
    while !behind.redis.command::<String>(&["INFO", "clients"]).await.contains("blocked_clients:1") {}
    let hung = behind.proxy.hang();
    let _: () = behind.redis.command(&["RPUSH", "list", "v"]).await;
    hung.struck().await;
    assert!(!answer.is_finished());
    behind.proxy.mend().await;
    assert_eq!(answer.await.unwrap().unwrap().1, "v");
}

/// Fails when `replies` takes `Kind::Drop` for `Kind::Silence`, when `strike` leaves the fault armed, and when `is_for`
/// takes any request.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_reply_is_of_a_request_that_happened_once() {
    let behind = Behind::start().await;
    let mut connection = behind.connect().await;
    let dropped = behind.proxy.drop_reply(Request::With("INCR"));
    assert_eq!(cmd("PING").query_async::<String>(&mut connection).await.unwrap(), "PONG");
    let lost = increment(connection).await.unwrap_err();
    assert!(lost.is_connection_dropped(), "{lost}");
    dropped.struck().await;
    assert_eq!(behind.count().await, Some(1));
    assert_eq!(increment(behind.connect().await).await.unwrap(), 2);
}

/// Fails when `carry` takes `Parting::Reset` for `Parting::Close`, when `requests` sends on what it refuses, and when
/// `replies` takes `Kind::Reset` or `Kind::Halve` for `Kind::Drop`.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reset_before_its_request_or_after_it_or_ends_in_mid_reply() {
    let behind = Behind::start().await;
    let increment = async || {
        let mut connection = TcpStream::connect(behind.proxy.address()).await.unwrap();
        connection.write_all(b"INCR k\r\n").await.unwrap();
        let mut said = Vec::new();
        let ended = connection.read_to_end(&mut said).await;
        (ended.map(drop).map_err(|error| error.kind()), said)
    };
    let refused = behind.proxy.reset_request(Request::With("INCR"));
    assert_eq!(increment().await, (Err(ErrorKind::ConnectionReset), Vec::new()));
    refused.struck().await;
    assert_eq!(behind.count().await, None);

    let reset = behind.proxy.reset_reply(Request::With("INCR"));
    assert_eq!(increment().await, (Err(ErrorKind::ConnectionReset), Vec::new()));
    reset.struck().await;
    assert_eq!(behind.count().await, Some(1));

    let halved = behind.proxy.halve_reply(Request::With("INCR"));
    assert_eq!(increment().await, (Ok(()), b":2".to_vec()));
    halved.struck().await;
    assert_eq!(behind.count().await, Some(2));
}

/// Fails when `replies` takes `Kind::Silence` for `Kind::Drop`, and when `requests` sends on what comes after the silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_open_and_carries_nothing() {
    let behind = Behind::start().await;
    let connection = behind.connect_waiting(Duration::from_millis(100)).await.unwrap();
    let silent = behind.proxy.silence_reply(Request::Next);
    for _ in 0..2 {
        let lost = increment(connection.clone()).await.unwrap_err();
        assert!(lost.is_timeout(), "{lost}");
        silent.struck().await;
    }
    assert_eq!(behind.count().await, Some(1));
    assert_eq!(increment(behind.connect().await).await.unwrap(), 2);
}

/// Fails when `carry` ends with the requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_request_arrives_after_its_client_has_gone_and_sent_another() {
    for _ in 0..10 {
        let behind = Behind::start().await;
        let impatient = behind.connect_waiting(Duration::from_millis(20)).await.unwrap();
        let held = behind.proxy.hold_request(Request::Next);
        assert!(increment(impatient).await.unwrap_err().is_timeout());
        held.struck().await;
        assert_eq!(behind.count().await, None);
        assert_eq!(increment(behind.connect().await).await.unwrap(), 1);
        held.release().await;
        assert_eq!(behind.count().await, Some(2));
    }
}

/// Fails when `replies` does not sleep.
#[tokio::test(flavor = "multi_thread")]
async fn each_reply_is_delayed() {
    let behind = Behind::start().await;
    let connection = behind.connect().await;
    behind.proxy.delay(Duration::from_millis(50));
    let begun = Instant::now();
    for _ in 0..2 {
        increment(connection.clone()).await.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_millis(100));
}
