//! Connections are scarce: whoever holds them all, claims and renewals have theirs, and everybody gets on.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::{join_all, select_all};
use http::StatusCode;
use idempotency_layer::store::{Begin, Claim};
use idempotency_layer::{Operation, PostgresStore, PostgresTransaction, Store, TransactionalStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Request;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinHandle;

use super::behind::{Behind, CLAIM, EFFECT, LEVELS, patient, pay, paying, write};
use crate::counted::request;
use crate::request::{Answer, PATIENCE, again_until, gated, keyed, send, sending};

/// A pool of a user's, of so many connections, and a store with its options.
async fn with_pool(behind: &Behind, most: u32) -> (PgPool, PostgresStore) {
    let pool = PgPoolOptions::new().max_connections(most).connect_lazy(&behind.url()).unwrap();
    let store = PostgresStore::new(pool.clone()).await.unwrap().timeout(PATIENCE);
    (pool, store)
}

/// Waits until so many of these requests are in their handler. One that is answered before that is told from one that
/// hangs.
async fn enter(gate: &Gate, handlers: usize, runs: &mut [JoinHandle<Answer>]) {
    let entered = async {
        for _ in 0..handlers {
            gate.entered().await;
        }
    };
    tokio::select! {
        () = entered => {}
        (answer, ..) = select_all(runs) => panic!("it was answered: {answer:?}"),
    }
}

/// Watches for longer than leases last that these keys are in flight in the eyes of another process.
async fn stay_in_flight(behind: &Behind, keys: &[&'static str]) {
    let heir = behind.heir(&Gate::open()).await;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < LEASE * 2 {
        for key in keys {
            assert_eq!(send(&heir, keyed("/pay", key), "").await.problem(), Some("in-flight"), "{key}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// S32. A handler that ends its transaction makes its session one that writes; the next one to have it may not write behind
/// the store's back. Fails when `ROLLBACK` does not reset the session.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_sets_in_its_session_is_gone_after_a_rollback() {
    let behind = Behind::share().await;
    let (_pool, store) = with_pool(&behind, 1).await;
    let begin = async || {
        let request = request();
        assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
        match store.begin(&request.lease).await.unwrap() {
            Begin::Begun(transaction) => transaction,
            Begin::Fenced => panic!("its holder is fenced"),
        }
    };
    let session = async |transaction: &mut PostgresTransaction| {
        let mut connection = transaction.connection().await.unwrap();
        sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()").fetch_one(&mut *connection).await.unwrap()
    };
    let mut first = begin().await;
    let of_first = session(&mut first).await;
    write(&mut first, "ROLLBACK").await.unwrap();
    write(&mut first, "SET default_transaction_read_only = off").await.unwrap();
    store.rollback(first).await;

    let mut second = begin().await;
    assert_eq!(session(&mut second).await, of_first);
    write(&mut second, "ROLLBACK").await.unwrap();
    assert!(write(&mut second, EFFECT).await.is_err());
    store.rollback(second).await;
    assert_eq!(behind.effects().await, 0);
}

/// S24 and S27. Two connections each for the user, for claims and for transactions, all held by two handlers that do not
/// end; a third waits for a transaction. Fails when handlers' transactions are lent over the line of the verbs, and when a
/// line has one place less.
#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_hold_every_connection_of_the_user_and_every_transaction_stop_no_claim_and_no_renewal() {
    join_all(LEVELS.map(|level| async move {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let (pool, store) = with_pool(&behind, 2).await;
        let store = store.isolation(level);
        let (own, entered) = (store.clone(), gate.clone());
        let handler = async move |operation: Operation| {
            let _held = pool.acquire().await.unwrap();
            pay(&own, &entered, operation).await
        };
        // A handler that waits for the user's pool gives up after the pool's 30 s.
        let transactions = Router::new().route("/pay", post(handler)).layer(patient(&store).lease(LEASE));
        let mut runs = ["a", "b"].map(|key| sending(&transactions, keyed("/pay", key), ""));
        enter(&gate, 2, &mut runs).await;
        let third = sending(&transactions, keyed("/pay", "c"), "");
        // Otherwise the other process might come first.
        again_until(async || behind.count("idempotency_record").await, |claimed| *claimed == 3).await;

        let plain = gated(patient(&store), Gate::open());
        let others = async {
            for key in ["d", "e", "f"] {
                assert_eq!(send(&plain, keyed("/pay", key), "").await.status, 201, "{level:?}");
                assert!(send(&plain, keyed("/pay", key), "").await.is_replay(), "{level:?}");
            }
        };
        tokio::join!(others, stay_in_flight(&behind, &["a", "b", "c"]));
        gate.release(3);
        for run in runs.into_iter().chain([third]) {
            let answer = run.await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, &b"attempt 1"[..]), "{level:?}");
        }
        assert_eq!(behind.effects().await, 3, "{level:?}");
    }))
    .await;
}

/// S24: claims that get no answer hold every connection of the verbs. Fails when renewals are sent over the line of the
/// verbs.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_hold_every_connection_stop_no_renewal() {
    let (behind, gate) = (Behind::share().await, Gate::closed());
    let (_pool, store) = with_pool(&behind, 2).await;
    let run = sending(&gated(patient(&store).lease(LEASE), gate.clone()), keyed("/pay", "k"), "");
    gate.entered().await;
    let router = gated(patient(&store), gate.clone());
    let held = [Request::Runs(CLAIM), Request::Runs(CLAIM)].map(|request| behind.proxy.hold_request(request));
    let claims = ["a", "b"].map(|key| sending(&router, keyed("/pay", key), ""));
    for held in &held {
        held.struck().await;
    }
    stay_in_flight(&behind, &["k"]).await;
    for held in held {
        held.release().await;
    }
    gate.release(3);
    assert_eq!(run.await.unwrap().body, "entry 1, attempt 1");
    for claim in claims {
        assert_eq!(claim.await.unwrap().status, 201);
    }
}

/// S24 and S27: as many handlers as there are connections, and as many again, all with a transaction at once. Fails when a
/// transaction's connection is not given back.
#[tokio::test(flavor = "multi_thread")]
async fn more_handlers_than_connections_all_commit_in_turn_at_each_isolation_level() {
    join_all(LEVELS.map(|level| async move {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let (_pool, store) = with_pool(&behind, 3).await;
        let store = store.isolation(level);
        let router = paying(&store, patient(&store), &gate);
        let keys = ["a", "b", "c", "d", "e", "f"];
        let mut runs = keys.map(|key| sending(&router, keyed("/pay", key), ""));
        enter(&gate, 3, &mut runs).await;
        gate.release(keys.len());
        for run in runs {
            let answer = run.await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, &b"attempt 1"[..]), "{level:?}");
        }
        assert_eq!(behind.effects().await, 6, "{level:?}");
    }))
    .await;
}

/// A third of it is the first renewal's to log in at the server; short enough to wait for.
const LEASE: Duration = Duration::from_secs(3);
