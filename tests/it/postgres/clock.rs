//! The server's clock and this machine's differ by an hour: nothing changes, and nothing that is sent has to do with this
//! machine's.

use std::num::NonZeroU16;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::{LeaseId, Page, Resolution, Write};
use idempotency_layer::{Operation, SharedStore, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;

use super::behind::{Behind, impatient, paying};
use crate::request::{again_until, gated, keyed, layer, send, send_unrun, send_until_ended, sending};

/// A server with its own idea of the time, which logs what it is asked.
async fn shifted(hours: i32) -> Behind {
    let behind = Behind::start_with(&[("log_statement", "all")]).await;
    let shift = format!(
        "CREATE SCHEMA shifted; \
         CREATE FUNCTION shifted.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS \
         $$ SELECT pg_catalog.statement_timestamp() + interval '{hours} hours' $$; \
         ALTER DATABASE postgres SET search_path = shifted, pg_catalog, public"
    );
    behind.postgres.execute(&shift).await;
    behind
}

/// Answers with the status in the request's body.
async fn mirror(State(gate): State<Gate>, _: Operation, body: String) -> StatusCode {
    gate.pass().await;
    StatusCode::from_u16(body.parse().unwrap()).unwrap()
}

/// S13. Fails when `now` of a row is this machine's, and when a claim sends when its lease ends instead of how long it
/// lasts.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_by_an_hour_changes_nothing_and_no_moment_of_it_is_sent() {
    join_all([-1, 1].map(|hours| async move {
        let (behind, gate) = (shifted(hours).await, Gate::closed());
        let begun = now();
        let store = behind.store().await;
        let heir = behind.heir(&Gate::open()).await;

        // A run that is renewed is in flight for everybody, and young.
        let router = gated(impatient(&store).lease(LEASE), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        again_until(async || behind.count("idempotency_lease").await, |renewed| *renewed > 0).await;
        for service in [&router, &heir] {
            let duplicate = send_unrun(service, keyed("/pay", "k"), "", &gate).await;
            assert_eq!(duplicate.problem(), Some("in-flight"), "{hours}");
            let age: i64 = duplicate.headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!(age <= (now() - begun) / 1000 + 1, "{hours}: {age}");
        }
        gate.release(1);
        assert_eq!(run.await.unwrap().body, "entry 1, attempt 1", "{hours}");
        for service in [&router, &heir] {
            assert!(send(service, keyed("/pay", "k"), "").await.is_replay(), "{hours}");
        }

        // One whose holder has gone is taken over once its lease has lapsed, and not before.
        let lost = behind.store().await;
        let doomed = gated(impatient(&lost).lease(LEASE), gate.clone());
        let (doomed, claimed) = (sending(&doomed, keyed("/pay", "lost"), ""), std::time::Instant::now());
        gate.entered().await;
        behind.proxy.cut().await;
        assert_eq!(send_until_ended(&heir, "lost").await.body, "entry 1, attempt 2", "{hours}");
        assert!(claimed.elapsed() >= LEASE / 2, "{hours}");
        gate.release(1);
        doomed.abort();
        behind.proxy.mend().await;

        // Every other verb.
        let store = behind.store().await;
        let transactions = paying(&store, layer(&SharedStore::new(store.clone())), &Gate::open());
        assert_eq!(send(&transactions, keyed("/pay", "committed"), "").await.status, 201, "{hours}");
        assert!(send(&transactions, keyed("/pay", "committed"), "").await.is_replay(), "{hours}");
        let open = Gate::open();
        for status in ["201", "400", "429", "500"] {
            for unknown in [UnknownOutcome::Rerun, UnknownOutcome::Hold] {
                let timed = layer(&SharedStore::new(store.clone())).lease(LEASE).retention(RETENTION);
                let router = Router::new()
                    .route("/pay", any(mirror))
                    .layer(timed.unknown_outcome(unknown).publish_expiry(true))
                    .with_state(open.clone());
                for _ in 0..2 {
                    let answer = send(&router, keyed("/pay", &format!("{status}-{unknown:?}")), status).await;
                    if let Some(expires) = answer.headers.get("idempotency-expires-in") {
                        let seconds: u64 = expires.to_str().unwrap().parse().unwrap();
                        assert!((900..=987).contains(&seconds), "{hours}: {seconds}");
                    }
                }
            }
        }
        for held in store.held(&Page::first(NonZeroU16::MAX)).await.unwrap().records {
            assert!(held.age < Duration::from_secs(600), "{hours}: {held:?}");
            assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
        }
        assert_eq!(store.sweep().await.unwrap(), 0, "{hours}");

        let log = behind.postgres.log();
        let sent: Vec<i64> = log
            .lines()
            .filter(|line| line.contains("parameters: "))
            .flat_map(|line| line.split('\''))
            .filter_map(|word| word.parse().ok())
            .collect();
        assert!(sent.contains(&(LEASE.as_millis() as i64)) && sent.len() > 100, "{sent:?}");
        let own = begun - HALF_AN_HOUR..now() + HALF_AN_HOUR;
        assert!(sent.iter().all(|number| !own.contains(number)), "{hours}: {sent:?}");
    }))
    .await;
}

/// By this machine's clock, in milliseconds.
#[expect(clippy::disallowed_methods, reason = "the clock of which nothing is to be sent is this one")]
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

const HALF_AN_HOUR: i64 = 30 * 60 * 1000;

const LEASE: Duration = Duration::from_millis(3456);
const RETENTION: Duration = Duration::from_millis(987_654);
