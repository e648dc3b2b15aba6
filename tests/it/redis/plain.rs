//! Claims that are plain commands, where the script has the last word: what a server refuses, and how old a record is whose
//! times are left to its expiry.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::{
    Acquired, CallerFingerprint, Claim, ClaimRequest, Completion, LapsePolicy, Lease, LeaseId, Look, StoredResponse,
    Write,
};
use idempotency_layer::{RedisStore, Store, StoreErrorKind};
use idempotency_tests::gate::Gate;
use idempotency_tests::redis::RedisServer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::behind::Behind;
use super::keys;
use crate::request::{gated, keyed, layer, send};

/// A claim of a key with a life of its own, and one that does not end with a lapse.
fn claim(key: u8) -> ClaimRequest {
    let claim = keys::claim(key);
    ClaimRequest { policy: LapsePolicy { max_attempts: NonZeroU32::MAX, ..claim.policy }, ..claim }
}

/// The same request under another lease.
fn again(key: u8) -> ClaimRequest {
    let claim = claim(key);
    ClaimRequest { lease: Lease { id: LeaseId::random(), ..claim.lease }, ..claim }
}

fn paid() -> Completion {
    Completion::Response(StoredResponse::new(StatusCode::CREATED, "paid".into()).into())
}

/// A store on a server of its own, whose one record is a run.
async fn running() -> (RedisServer, RedisStore) {
    let server = RedisServer::start().await;
    let store = RedisStore::connect(&server.url()).await.unwrap();
    assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    (server, store)
}

/// Tells the server about its one record.
async fn tell(server: &RedisServer, command: &str, argument: Option<Duration>) {
    let [key]: [Vec<u8>; 1] = server.command::<Vec<Vec<u8>>>(&["KEYS", "*"]).await.try_into().unwrap();
    let mut told = redis::cmd(command);
    told.arg(key).arg(argument.map(|time| time.as_millis().to_string()));
    let done: i64 = server.query(&told).await.unwrap();
    assert_eq!(done, 1, "{command}");
}

/// S12. A server that takes no write still says what it has. Fails when `RedisStore::understand` takes what the server refuses
/// for no answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_is_replayed_also_where_nothing_can_be_written() {
    let settings = [["maxmemory", "1"], ["min-replicas-to-write", "1"]];
    join_all(settings.map(|[name, value]| async move {
        let (behind, gate) = (Behind::start_with(&[]).await, Gate::open());
        let router = gated(layer(&behind.store().await), gate.clone());
        let first = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!(first.status, 201, "{name}");
        let _done: String = behind.redis.command(&["CONFIG", "SET", name, value]).await;
        let replay = send(&router, keyed("/pay", "k"), "").await;
        assert!(replay.is_replay() && replay.body == first.body, "{name}: {replay:?}");
        assert_eq!(send(&router, keyed("/pay", "k"), "another").await.problem(), Some("key-reused"), "{name}");
        assert_eq!(send(&router, keyed("/pay", "new"), "").await.problem(), Some("store-unavailable"), "{name}");
        assert_eq!(gate.entries(), 1, "{name}");
    }))
    .await;
}

/// The server makes what has passed of a record's time longer, so that nothing here waits. Fails when `read.lua` counts the
/// lease of such a record from its expiry, when `claim.lua` or `plain::running` lets it last a second more or less, and when
/// `look.lua` does not say that it has lapsed.
#[tokio::test]
async fn a_run_whose_times_are_not_told_is_over_when_its_lease_is() {
    let (server, store) = running().await;
    let Lease { record, duration, .. } = claim(1).lease;
    let kept = claim(1).retention;
    let near = |age: Duration, passed: Duration| age >= passed && age < passed + MOMENT;

    let passed = duration - MOMENT;
    tell(&server, "PEXPIRE", Some(kept - passed)).await;
    let refused = store.claim(&again(1)).await.unwrap();
    assert!(matches!(refused, Claim::InFlight { age } if near(age, passed)), "{refused:?}");
    let look = store.look(&record).await.unwrap();
    assert!(matches!(look, Look::Running { age, lapsed: false, .. } if near(age, passed)), "{look:?}");
    // How long the record is kept tells its age, and not what is asked for now.
    let other = ClaimRequest { retention: kept * 2, ..again(1) };
    assert!(matches!(store.claim(&other).await.unwrap(), Claim::InFlight { .. }));

    tell(&server, "PEXPIRE", Some(kept - duration)).await;
    assert!(matches!(store.look(&record).await.unwrap(), Look::Running { lapsed: true, .. }));
    let heir = again(1);
    let taken = store.claim(&heir).await.unwrap();
    assert!(matches!(taken, Claim::Acquired(Acquired { attempt: 2, .. })), "{taken:?}");
    assert_eq!(store.complete(&claim(1).lease, &paid()).await.unwrap(), Write::Fenced);
    assert!(matches!(store.claim(&again(1)).await.unwrap(), Claim::InFlight { .. }));
    assert_eq!(store.complete(&heir.lease, &paid()).await.unwrap(), Write::Done);
}

/// Fails when `end.lua` keeps the expiry of the run, when `met` says that a record expires as long after as it is kept, and
/// when `end.lua` asks nobody whose lease it is.
#[tokio::test]
async fn a_completion_is_kept_for_the_retention_from_then_on() {
    let (server, store) = running().await;
    let kept = claim(1).retention;
    tell(&server, "PEXPIRE", Some(MOMENT)).await;
    assert_eq!(store.complete(&again(1).lease, &paid()).await.unwrap(), Write::Fenced);
    assert_eq!(store.complete(&claim(1).lease, &paid()).await.unwrap(), Write::Done);
    for passed in [Duration::ZERO, kept / 2] {
        if !passed.is_zero() {
            tell(&server, "PEXPIRE", Some(kept - passed)).await;
        }
        let found = store.claim(&again(1)).await.unwrap();
        let Claim::Recorded(recorded) = found else { panic!("{found:?}") };
        let left = kept - passed;
        assert!(recorded.expires_in <= left && recorded.expires_in > left - MOMENT, "{:?}", recorded.expires_in);
    }
}

/// Without its expiry nobody knows how old a run is; an end is one all the same. Fails when `read.lua` goes on without.
#[tokio::test]
async fn a_run_whose_expiry_was_taken_away_is_corrupt_and_an_end_is_replayed() {
    let (server, store) = running().await;
    tell(&server, "PERSIST", None).await;
    for _ in 0..2 {
        let refused = store.claim(&again(1)).await.map_err(|error| error.kind());
        assert_eq!(refused.unwrap_err(), StoreErrorKind::Corrupt);
    }
    // Its holder knows what it holds.
    assert_eq!(store.complete(&claim(1).lease, &paid()).await.unwrap(), Write::Done);
    tell(&server, "PERSIST", None).await;
    let replay = store.claim(&again(1)).await.unwrap();
    assert!(matches!(replay, Claim::Recorded(_)), "{replay:?}");
    let caller = CallerFingerprint::from_bytes([9; 32]);
    assert!(matches!(store.claim(&ClaimRequest { caller, ..again(1) }).await.unwrap(), Claim::CallerChanged));
}

/// Fails when `RedisStore::refused_plain_claim` remembers nothing, and when `understand` takes what the server refuses for no
/// answer.
#[tokio::test]
async fn a_server_that_does_not_know_the_plain_claim_is_asked_by_script_from_then_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = redis::Client::open(format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let server = tokio::spawn({
        let heard = heard.clone();
        async move { old_server(listener.accept().await.unwrap().0, &heard).await }
    });
    let store = RedisStore::from_connection(client.get_multiplexed_async_connection().await.unwrap());
    heard.lock().unwrap().clear();
    for _ in 0..2 {
        assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    }
    assert_eq!(*heard.lock().unwrap(), ["SET", "PTTL", "EVALSHA", "EVALSHA"]);
    server.abort();
}

/// What a server before Redis 7.0 says to the commands of a claim, whose key is free.
async fn old_server(mut client: TcpStream, heard: &Mutex<Vec<String>>) {
    let (reader, mut writer) = client.split();
    let mut reader = BufReader::new(reader);
    let mut header = String::new();
    while reader.read_line(&mut header).await.unwrap() > 0 {
        let count: usize = header.trim().strip_prefix('*').unwrap().parse().unwrap();
        let mut words = Vec::new();
        for _ in 0..count {
            header.clear();
            reader.read_line(&mut header).await.unwrap();
            let mut word = vec![0; header.trim().strip_prefix('$').unwrap().parse::<usize>().unwrap() + 2];
            reader.read_exact(&mut word).await.unwrap();
            words.push(word);
        }
        header.clear();
        let name = String::from_utf8(words.swap_remove(0)).unwrap().trim().to_owned();
        let answer = match &name[..] {
            "SET" => "-ERR syntax error\r\n",
            "PTTL" => ":-2\r\n",
            "EVALSHA" => ":1\r\n",
            _ => "+OK\r\n",
        };
        heard.lock().unwrap().push(name);
        writer.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Longer than anything here takes, and shorter than all that is told apart.
const MOMENT: Duration = Duration::from_secs(20);
