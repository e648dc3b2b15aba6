//! A record that vanishes while a claim is under way, and a row that this version has not written: nothing runs without a
//! claim, and nothing is overwritten.

use futures_util::future::join_all;
use idempotency_layer::SharedStore;
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Request;
use sqlx::AssertSqlSafe;

use super::behind::{Behind, CLAIM, REPLACE};
use crate::request::{again_until, gated, keyed, layer, send, sending};

/// What is set in a record's row.
const DAMAGES: [&str; 14] = [
    "format = 2",
    "format = 32767",
    "format = 0",
    "format = -1",
    "state = 0",
    "state = 9",
    "fingerprint = ''",
    "caller = '\\x00'",
    "lease = '\\x0102'",
    "attempt = -1",
    "attempt = 4294967296",
    "max_lapsed = 0",
    "on_unknown = 7",
    "retention = -1",
];

/// Further ones, in a row that has a response.
const IN_RESPONSES: [&str; 7] = [
    "status = NULL",
    "status = 12",
    "headers = NULL",
    "headers = '\\x01'",
    "body = NULL",
    "trailers = '\\xffffff'",
    "state = 3",
];

/// The only record's row, as text.
async fn row(behind: &Behind) -> String {
    sqlx::query_scalar("SELECT r::text FROM idempotency_record r").fetch_one(&mut behind.witness().await).await.unwrap()
}

async fn put(behind: &Behind, damage: &str) -> String {
    let update = format!("UPDATE idempotency_record SET {damage}");
    sqlx::raw_sql(AssertSqlSafe(update)).execute(&mut behind.witness().await).await.unwrap();
    row(behind).await
}

/// S11. Fails when `found` takes a later format for its own, when `state` takes a code that it does not know for free, and
/// when `header_map` takes what it cannot read for no headers.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_503_and_neither_run_nor_overwritten() {
    let (behind, gate) = (Behind::share().await, Gate::open());
    let router = gated(layer(&SharedStore::new(behind.store().await)), gate.clone());
    for (at, damage) in DAMAGES.iter().chain(&IN_RESPONSES).enumerate() {
        behind.execute("TRUNCATE idempotency_record").await;
        assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 201, "{damage}");
        let damaged = put(&behind, damage).await;
        for _ in 0..2 {
            let refused = send(&router, keyed("/pay", "k"), "").await;
            assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("record-unreadable")), "{damage}");
        }
        assert_eq!(gate.entries() as usize, at + 1, "{damage}");
        assert_eq!(row(&behind).await, damaged, "{damage} was overwritten");
    }
}

/// S11 at the record: the run cannot be recorded, its client is answered, and what another version or another hand has put
/// there is left alone. Fails when `SETTLE` does not ask for the state, and when `READABLE` asks for the format only.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_damaged_while_its_run_goes_on_is_not_overwritten_by_its_record() {
    join_all(DAMAGES.map(|damage| async move {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let router = gated(layer(&SharedStore::new(behind.store().await)), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        let damaged = put(&behind, damage).await;
        gate.release(1);
        run.await.unwrap();
        assert_eq!(row(&behind).await, damaged, "{damage} was overwritten");
        let refused = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("record-unreadable")), "{damage}");
    }))
    .await;
}

/// S10. A claim loses to a row that it cannot see, because that was committed after it began; it looks again, by which time
/// the row has vanished or has not. Fails when `PostgresStore::claim` takes a row that it does not see for one that it has
/// made.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lost_to_a_record_that_it_cannot_see_looks_again_and_never_runs_without_a_claim() {
    for vanishes in [false, true] {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let _first = sending(&behind.heir(&gate).await, keyed("/pay", "k"), "");
        gate.entered().await;
        behind.execute("CREATE TABLE kept AS TABLE idempotency_record; DELETE FROM idempotency_record").await;

        let mut winner = behind.witness().await;
        let insert = "BEGIN; INSERT INTO idempotency_record SELECT * FROM kept";
        sqlx::raw_sql(insert).execute(&mut winner).await.unwrap();
        let own = Gate::open();
        let router = gated(layer(&SharedStore::new(behind.store().await)), own.clone());
        let loser = sending(&router, keyed("/pay", "k"), "");
        again_until(async || behind.waiting().await, |waiting| *waiting == 1).await;
        let looks = behind.proxy.hold_request(Request::Runs(CLAIM));
        sqlx::raw_sql("COMMIT").execute(&mut winner).await.unwrap();
        looks.struck().await;
        if vanishes {
            behind.execute("DELETE FROM idempotency_record").await;
        }
        looks.release().await;
        let answer = loser.await.unwrap();
        let (status, problem, entries) = if vanishes { (201, None, 1) } else { (409, Some("in-flight"), 0) };
        assert_eq!((answer.status.as_u16(), answer.problem()), (status, problem), "vanishes: {vanishes}");
        assert_eq!(own.entries(), entries, "vanishes: {vanishes}");
        // What runs has a claim.
        assert_eq!(behind.count("idempotency_record").await, 1, "vanishes: {vanishes}");
    }
}

/// S10. A record that was freed vanishes, or is another's, between a claim that has read it and the write that takes its
/// place. Fails when a write that has found nothing to replace is taken for done.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_record_vanishes_before_it_is_replaced_begins_again() {
    for vanishes in [false, true] {
        let behind = Behind::share().await;
        let (elsewhere, gate) = (Gate::closed(), Gate::open());
        let freed = crate::outcomes::mirroring(layer(&SharedStore::new(behind.elsewhere().await)));
        assert_eq!(send(&freed, keyed("/pay", "k"), "429").await.status, 429);
        let handler = {
            let gate = gate.clone();
            async move |operation: idempotency_layer::Operation| {
                gate.pass().await;
                format!("attempt {}", operation.attempt())
            }
        };
        let router = axum::Router::new()
            .route("/pay", axum::routing::post(handler))
            .layer(layer(&SharedStore::new(behind.store().await)));
        let replaces = behind.proxy.hold_request(Request::Runs(REPLACE));
        let late = sending(&router, keyed("/pay", "k"), "429");
        replaces.struck().await;
        let rival = if vanishes {
            behind.execute("DELETE FROM idempotency_record").await;
            None
        } else {
            let rival = sending(&behind.heir(&elsewhere).await, keyed("/pay", "k"), "429");
            elsewhere.entered().await;
            Some(rival)
        };
        replaces.release().await;
        let late = late.await.unwrap();
        match rival {
            None => assert_eq!((&late.body[..], gate.entries()), (&b"attempt 1"[..], 1)),
            Some(rival) => {
                assert_eq!((late.problem(), gate.entries()), (Some("in-flight"), 0));
                elsewhere.release(1);
                assert_eq!(rival.await.unwrap().body, "entry 1, attempt 2");
            }
        }
        assert_eq!(behind.count("idempotency_record").await, 1);
    }
}
