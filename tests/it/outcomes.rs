//! What becomes of a key follows from how its handler answered.

use std::future::pending;
use std::mem::forget;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{any, post};
use http::{Method, StatusCode};
use idempotency_layer::{IdempotencyLayer, MemoryStore, Operation, Outcome, Propagation, SharedStore, UnknownOutcome};
use idempotency_tests::stores::{all, embedded};

use crate::request::{Answer, keyed, layer, send};

/// Answers with the status in the request's body. What it takes as arguments is gone when it has answered, so that its run
/// could have done nothing.
async fn mirror(State(()): State<()>, _: Operation, _: Propagation, body: String) -> StatusCode {
    StatusCode::from_u16(body.parse().unwrap()).unwrap()
}

/// A router whose every path answers with the status in the request's body.
pub(crate) fn mirroring(layer: IdempotencyLayer<SharedStore>) -> Router {
    Router::new().route("/{*path}", any(mirror)).layer(layer).with_state(())
}

/// What a retry of the same request got.
fn seen(again: &Answer) -> &str {
    again.problem().unwrap_or(if again.is_replay() { "replay" } else { "run" })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Becomes {
    Recorded,
    Forgotten,
    Freed,
    Unknown,
}

/// S20. Fails when any status moves to another row of the policy; and when Redis's `forget.lua` or Postgres's `FORGET` leaves
/// its record, or Redis's `hold` frees the key.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_the_key_follows_from_the_answer() {
    let rows: [(Becomes, &[u16]); 4] = [
        (Becomes::Recorded, &[200, 201, 204, 303, 402, 404, 409, 410, 412]),
        (Becomes::Forgotten, &[400, 401, 403, 405, 406, 411, 413, 414, 415, 422, 426, 428, 431]),
        (Becomes::Freed, &[425, 429]),
        (Becomes::Unknown, &[408, 500, 501, 502, 503, 504, 599]),
    ];
    for subject in all().await {
        for (becomes, statuses) in rows {
            for status in statuses {
                for unknown in [UnknownOutcome::Rerun, UnknownOutcome::Hold] {
                    let case = format!("{}: {status}, {unknown:?}", subject.name);
                    let router = mirroring(layer(&subject.store).unknown_outcome(unknown));
                    let (key, body) = (format!("{status}-{unknown:?}"), status.to_string().leak());
                    let answer = send(&router, keyed("/pay", &key), body).await;
                    assert_eq!((answer.status.as_u16(), answer.is_replay()), (*status, false), "{case}");
                    let then = match (becomes, unknown) {
                        (Becomes::Recorded, _) => "replay",
                        (Becomes::Unknown, UnknownOutcome::Hold) => "outcome-unknown",
                        _ => "run",
                    };
                    assert_eq!(seen(&send(&router, keyed("/pay", &key), body).await), then, "{case}");
                    let other = send(&router, keyed("/pay", &key), "207").await;
                    let allowed = if becomes == Becomes::Forgotten { 207 } else { 422 };
                    assert_eq!(other.status.as_u16(), allowed, "{case}");
                }
            }
        }
    }
}

/// What a handler does with the propagation of its run before it answers with the status in the request's body.
async fn deal(Path(deed): Path<String>, run: Propagation, body: String) -> Response {
    match deed.as_str() {
        "gives-a-key" => drop(run.operation("charge").key().unwrap()),
        "has-a-task-give-a-key" => {
            run.spawn(async { drop(current().operation("charge").key().unwrap()) }).await.unwrap()
        }
        "calls-without-a-name" => {
            drop(current().ambient(&Method::POST, "https://pay.example", "/charges").key().unwrap());
        }
        "leaves-a-task-behind" => drop(run.spawn(pending::<()>())),
        "leaves-an-operation-behind" => forget(run.operation("charge")),
        "asks-for-no-key" => drop(run.operation("charge")),
        "awaits-its-task" => run.spawn(async { drop(current()) }).await.unwrap(),
        other => panic!("no such deed: {other}"),
    }
    let mut response = Response::new(Body::from(run.attempt().to_string()));
    *response.status_mut() = StatusCode::from_u16(body.parse().unwrap()).unwrap();
    if body == "200" {
        response.extensions_mut().insert(Outcome::NothingRan);
    }
    response
}

fn current() -> Propagation {
    Propagation::current().unwrap()
}

/// S20, after a derived key. Fails when `Run::judge` takes `may_have_given_key` for false or for true, or asks
/// `has_given_key` alone; when `run::start` keeps a clone, or `Run::drive` the handler's future, until the run is judged;
/// and when `settlement` forgets what a handler has declared to be nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_forgets_the_key_only_if_the_run_gave_no_key_away_and_cannot_any_more() {
    let deeds = [
        ("gives-a-key", Becomes::Freed),
        ("has-a-task-give-a-key", Becomes::Freed),
        ("calls-without-a-name", Becomes::Freed),
        ("leaves-a-task-behind", Becomes::Freed),
        ("leaves-an-operation-behind", Becomes::Freed),
        ("asks-for-no-key", Becomes::Forgotten),
        ("awaits-its-task", Becomes::Forgotten),
    ];
    for subject in all().await {
        let router = Router::new().route("/{deed}", post(deal));
        let router = router.layer(layer(&subject.store).unknown_outcome(UnknownOutcome::Hold));
        for (deed, becomes) in deeds {
            let path = format!("/{deed}");
            // The last one of these is a success that says by itself that nothing ran.
            for status in ["400", "401", "403", "405", "413", "415", "422", "200"] {
                let (case, key) = (format!("{}: {deed}, {status}", subject.name), format!("{deed}-{status}"));
                let first = send(&router, keyed(&path, &key), status).await;
                assert_eq!((first.status.as_str(), &first.body[..]), (status, &b"1"[..]), "{case}");
                let mended = send(&router, keyed(&path, &key), "207").await;
                if becomes == Becomes::Forgotten {
                    assert_eq!((mended.status.as_u16(), &mended.body[..]), (207, &b"1"[..]), "{case}");
                } else {
                    assert_eq!((mended.status.as_u16(), mended.problem()), (422, Some("key-reused")), "{case}");
                    let again = send(&router, keyed(&path, &key), status).await;
                    assert_eq!((again.status.as_str(), &again.body[..]), (status, &b"2"[..]), "{case}");
                }
            }
        }
    }
}

/// Fails when the extension is not asked, or asked after the table.
#[tokio::test]
async fn the_handlers_word_outweighs_the_table() {
    async fn handler(State(()): State<()>, body: String) -> Response {
        let (status, outcome) = match body.as_str() {
            "record 422" => (422, Outcome::Record),
            "free 200" => (200, Outcome::Free),
            "free 500" => (500, Outcome::Free),
            "nothing 200" => (200, Outcome::NothingRan),
            _ => (200, Outcome::Unknown),
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.extensions_mut().insert(outcome);
        response
    }
    let router = Router::new()
        .route("/pay", any(handler))
        .layer(layer(&SharedStore::new(MemoryStore::new())).unknown_outcome(UnknownOutcome::Hold))
        .with_state(());
    for (body, then) in [
        ("record 422", "replay"),
        ("free 200", "run"),
        ("free 500", "run"),
        ("nothing 200", "run"),
        ("?", "outcome-unknown"),
    ] {
        let key = body.replace([' ', '?'], "-");
        send(&router, keyed("/pay", &key), body).await;
        let again = send(&router, keyed("/pay", &key), body).await;
        assert_eq!(seen(&again), then, "{body}");
    }
    // What ran under `NothingRan` may be another request next time; what was freed may not.
    assert_eq!(send(&router, keyed("/pay", "nothing-200"), "other").await.status, 200);
    assert_eq!(send(&router, keyed("/pay", "free-200"), "other").await.status, 422);
}

/// S20, without a route. Fails when a 404 of no route is recorded, or one of a handler is forgotten.
#[tokio::test]
async fn a_404_of_no_route_leaves_the_key_free() {
    let store = SharedStore::new(MemoryStore::new());
    let router = || Router::new().route("/known", post(|| async { StatusCode::NOT_FOUND })).layer(layer(&store));
    for path in ["/unknown", "/other"] {
        let answer = send(&router(), keyed(path, "k"), "").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (404, false));
    }
    assert!(!send(&router(), keyed("/known", "k"), "").await.is_replay());
    assert!(send(&router(), keyed("/known", "k"), "").await.is_replay());
}

/// Fails when a replay tells the whole retention, and when what is not recorded tells any.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_answers_tell_how_long_their_key_is_kept_where_that_is_published() {
    for subject in embedded().await {
        let published = layer(&subject.store).retention(Duration::from_secs(100)).publish_expiry(true);
        let expires_in = |answer: &Answer| -> Option<u64> {
            answer.headers.get("idempotency-expires-in").map(|value| value.to_str().unwrap().parse().unwrap())
        };
        let router = mirroring(published);
        assert_eq!(expires_in(&send(&router, keyed("/pay", "k"), "201").await), Some(100), "{}", subject.name);
        subject.hand.advance(Duration::from_millis(30_500));
        let replay = send(&router, keyed("/pay", "k"), "201").await;
        assert_eq!((replay.is_replay(), expires_in(&replay)), (true, Some(69)), "{}", subject.name);
        for (key, status) in [("a", "400"), ("b", "429"), ("c", "500")] {
            assert_eq!(
                expires_in(&send(&router, keyed("/pay", key), status).await),
                None,
                "{}: {status}",
                subject.name
            );
        }
        let silent = mirroring(layer(&subject.store));
        assert_eq!(expires_in(&send(&silent, keyed("/pay", "k"), "201").await), None, "{}", subject.name);
    }
}
