//! Something is where a record would be that this version has not written: it is left as it is, and nothing runs.

use futures_util::future::join_all;
use idempotency_tests::gate::Gate;
use redis::Cmd;

use super::behind::Behind;
use crate::request::{gated, keyed, layer, send, sending};

/// What is written in place of a record, of which this is the value.
type Damage = fn(&[u8], &[u8]) -> Cmd;

fn set(key: &[u8], value: impl Into<Vec<u8>>) -> Cmd {
    let mut set = Cmd::new();
    set.arg("SET").arg(key).arg(value.into());
    set
}

/// Another byte at a place in the value.
fn with(value: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut value = value.to_owned();
    value[at] = byte;
    value
}

const DAMAGES: [(&str, Damage); 8] = [
    ("a hash", |key, _| {
        let mut hash = redis::cmd("HSET");
        hash.arg(key).arg("field").arg("value");
        hash
    }),
    ("empty", |key, _| set(key, "")),
    ("one byte", |key, value| set(key, &value[..1])),
    ("half a head", |key, value| set(key, &value[..129])),
    ("a head without its response", |key, value| set(key, &value[..130])),
    ("of another program", |key, _| set(key, [b'{'; 200])),
    ("of a newer version", |key, value| set(key, with(value, 0, 2))),
    ("in no state", |key, value| set(key, with(value, 1, 9))),
];

/// Puts damage in the place of the only record, and says where that is.
async fn put_damage(behind: &Behind, damage: Damage) -> Vec<u8> {
    let key = behind.records().await.into_keys().next().unwrap();
    let value: Vec<u8> = behind.redis.query(redis::cmd("GET").arg(&key)).await.unwrap();
    let _: () = behind.redis.query(redis::cmd("DEL").arg(&key)).await.unwrap();
    let _: () = behind.redis.query(&damage(&key, &value)).await.unwrap();
    key
}

async fn dump(behind: &Behind, key: &[u8]) -> Vec<u8> {
    behind.redis.query(redis::cmd("DUMP").arg(key)).await.unwrap()
}

/// S11. Fails when `read.lua` takes what has no head for no record, or any format for its own; when `of_verb`
/// takes another type for an outage; and when `response` takes what is cut off for a response.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_503_and_neither_run_nor_overwritten() {
    join_all(DAMAGES.map(|(what, damage)| async move {
        let (behind, gate) = (Behind::start_with(&[]).await, Gate::open());
        let router = gated(layer(&behind.elsewhere().await), gate.clone());
        assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 201, "{what}");
        let key = put_damage(&behind, damage).await;
        let damaged = dump(&behind, &key).await;

        for _ in 0..2 {
            let refused = send(&router, keyed("/pay", "k"), "").await;
            assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("record-unreadable")), "{what}");
        }
        assert_eq!(gate.entries(), 1, "{what}");
        assert_eq!(dump(&behind, &key).await, damaged, "{what} was overwritten");
        assert_eq!(behind.records().await.into_values().collect::<Vec<_>>(), [None], "{what} was given an expiry");
    }))
    .await;
}

/// S11 at the record: the run cannot be recorded, its client is answered, and what is there is left alone. Fails when
/// `end.lua` writes without reading.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_while_its_run_goes_on_is_not_overwritten_by_its_record() {
    join_all(DAMAGES.map(|(what, damage)| async move {
        if what == "a head without its response" {
            // So has every run.
            return;
        }
        let (behind, gate) = (Behind::start_with(&[]).await, Gate::closed());
        let router = gated(layer(&behind.elsewhere().await), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        let key = put_damage(&behind, damage).await;
        let damaged = dump(&behind, &key).await;

        gate.release(1);
        run.await.unwrap();
        assert_eq!(dump(&behind, &key).await, damaged, "{what} was overwritten");
        let refused = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("record-unreadable")), "{what}");
    }))
    .await;
}
