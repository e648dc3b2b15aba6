//! Every refusal, as the client gets it: status, headers and body against the agreed texts.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use futures_util::poll;
use http::{HeaderName, Request, Response, StatusCode};
use idempotency_layer::{
    IdempotencyLayer, KeyLimit, MemoryStore, Operation, Problem, SharedStore, SqliteStore, TransactionError,
    UnknownOutcome,
};
use idempotency_tests::bank;
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb, lost_if};
use idempotency_tests::stores::{all, embedded};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tower::{Layer, ServiceExt};

use crate::outcomes::mirroring;
use crate::request::{Answer, PATIENCE, again_until, gated, keyed, layer, send, send_unrun, sending};

const GOLDEN: &str = include_str!("../../shared/testdata/problems.json");
const DOCUMENTATION: &str = "https://docs.example/keys";

/// Holds an answer to the text of its code.
#[track_caller]
fn expect(answer: &Answer, code: &str, gaps: &[(&str, &str)], retry_after: Option<&str>, extra: &Value) {
    let golden: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    let golden = golden.iter().find(|problem| problem["code"] == code).unwrap();
    assert_eq!((json!(answer.status.as_u16()), answer.problem()), (golden["status"].clone(), Some(code)), "{answer:?}");
    let mut detail = golden["detail"].as_str().unwrap().to_owned();
    for (gap, value) in gaps {
        detail = detail.replace(gap, value);
    }
    let mut expected = json!({
        "type": format!("urn:idempotency:problem:{code}"),
        "title": golden["title"],
        "status": golden["status"],
        "detail": detail,
        "code": code,
        "retryable": golden["retryable"],
    });
    expected.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body, expected);

    let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(header("content-type"), Some("application/problem+json"));
    assert_eq!(header("cache-control"), Some("no-store"));
    assert_eq!(header("retry-after"), retry_after);
    assert_eq!(golden.get("retry_after").is_some(), retry_after.is_some());
    let link = code.starts_with("key-") && code != "key-reused";
    assert_eq!(header("link"), link.then_some("<https://docs.example/keys>; rel=\"describedby\""));
    assert_eq!(header("idempotent-replayed"), None);
}

#[track_caller]
fn expect_plain(answer: &Answer, code: &str) {
    expect(answer, code, &[], None, &json!({}));
}

fn documented() -> IdempotencyLayer<SharedStore> {
    layer(&SharedStore::new(MemoryStore::new())).documentation(DOCUMENTATION)
}

/// A service that answers 201 at once.
fn service(layer: IdempotencyLayer<SharedStore>) -> Router {
    gated(layer, Gate::open())
}

/// Fails when `admit` mistakes one error of the key for another, or `respond` leaves out a header.
#[tokio::test]
async fn a_missing_or_malformed_key_is_refused_with_its_own_problem() {
    let router = service(documented().key_limit(KeyLimit::new(10).unwrap()));
    let with = |value: &str| Request::post("/pay").header("idempotency-key", value);
    expect_plain(&send(&router, Request::post("/pay"), "").await, "key-missing");
    for invalid in ["", "\"\"", "a,b", "\"a\", \"b\"", "a;b", "\"a", "\"a\" b", "a b"] {
        expect_plain(&send(&router, with(invalid), "").await, "key-invalid");
    }
    let long = send(&router, with("abcdefghijk"), "").await;
    expect(&long, "key-too-long", &[("{length}", "11"), ("{limit}", "10")], None, &json!({}));
    expect_plain(&send(&router, with("a").header("idempotency-key", "a"), "").await, "key-repeated");
    assert_eq!(send(&router, with("\"abcdefghij\";p=1"), "").await.status, 201);
}

/// Fails when `intake::read` takes an error for the end, or does not count what was announced; and when `keyed` claims
/// before it reads.
#[tokio::test]
async fn a_body_that_cannot_be_taken_is_refused() {
    let gate = Gate::open();
    let router = gated(documented().max_request_body(4), gate.clone());
    let broken = Body::from_stream(futures_util::stream::iter([
        Ok(Bytes::from_static(b"ab")),
        Err(std::io::Error::other("reset")),
    ]));
    let response = router.clone().oneshot(keyed("/pay", "k").body(broken).unwrap()).await.unwrap();
    let answer = Answer::read(response).await;
    expect_plain(&answer, "body-unreadable");
    let short = send(&router, keyed("/pay", "k").header("content-length", "3"), "ab").await;
    expect_plain(&short, "body-unreadable");
    let large = send(&router, keyed("/pay", "k"), "abcde").await;
    expect(&large, "request-too-large", &[("{limit}", "4")], None, &json!({}));
    assert_eq!(gate.entries(), 0);
    // Nothing was claimed by any of them.
    assert_eq!(send(&router, keyed("/pay", "k"), "abcd").await.status, 201);
}

/// Fails when the fingerprints are not compared, or in the other order.
#[tokio::test]
async fn another_request_and_another_caller_are_told_apart() {
    let router = service(documented());
    let alice = || keyed("/pay", "k").header("authorization", "Bearer alice");
    assert_eq!(send(&router, alice(), "1").await.status, 201);
    expect_plain(&send(&router, alice(), "2").await, "key-reused");
    expect_plain(&send(&router, keyed("/pay", "k"), "1").await, "caller-changed");
    expect_plain(&send(&router, keyed("/pay", "k"), "2").await, "key-reused");
}

/// Fails when the age is not rounded up or not clamped.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_key_tells_when_to_come_again() {
    for subject in embedded().await {
        let gate = Gate::closed();
        let router = gated(layer(&subject.store).documentation(DOCUMENTATION), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        for (advance, seconds) in [(0, "1"), (900, "1"), (300, "2"), (2_500, "4"), (1_000, "5"), (9_000, "5")] {
            subject.hand.advance(Duration::from_millis(advance));
            expect(&send(&router, keyed("/pay", "k"), "").await, "in-flight", &[], Some(seconds), &json!({}));
        }
        gate.release(1);
        assert_eq!(run.await.unwrap().status, 201);
        let replay = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((replay.status.as_u16(), replay.is_replay()), (201, true));
        assert!(replay.headers.get("retry-after").is_none());
    }
}

/// Fails when a tombstone is recorded without its status.
#[tokio::test]
async fn an_answer_that_was_not_kept_is_not_given_again() {
    let router = service(documented().max_response_body(3));
    let first = send(&router, keyed("/pay", "k"), "").await;
    assert_eq!((first.status.as_u16(), &first.body[..]), (201, &b"entry 1, attempt 1"[..]));
    let again = send(&router, keyed("/pay", "k"), "").await;
    let gaps = [("{original_status}", "201")];
    expect(&again, "response-unavailable", &gaps, None, &json!({ "original_status": 201 }));
}

/// Fails when Hold frees, or the record's id is not the one that operators see.
#[tokio::test]
async fn an_unknown_outcome_under_hold_is_held() {
    let store = SharedStore::new(MemoryStore::new());
    let router = mirroring(layer(&store).unknown_outcome(UnknownOutcome::Hold));
    assert_eq!(send(&router, keyed("/pay", "k"), "500").await.status, 500);
    let held = send(&router, keyed("/pay", "k"), "500").await;
    let page = idempotency_layer::store::Page::first(10.try_into().unwrap());
    let [record] = &idempotency_layer::Store::held(&store, &page).await.unwrap().records[..] else {
        panic!("not held")
    };
    expect(&held, "outcome-unknown", &[], None, &json!({ "record": record.record.to_string() }));
}

/// Fails when the place is taken after the claim, or given back before the run is over.
#[tokio::test(flavor = "multi_thread")]
async fn more_runs_than_allowed_are_refused_before_any_claim() {
    let gate = Gate::closed();
    let router = gated(documented().max_running(1), gate.clone());
    let run = sending(&router, keyed("/pay", "a"), "");
    gate.entered().await;
    let refused = send_unrun(&router, keyed("/pay", "b"), "", &gate).await;
    expect(&refused, "overloaded", &[], Some("1"), &json!({}));
    gate.release(2);
    assert_eq!(run.await.unwrap().status, 201);
    // Nothing was claimed: another request may use the key. Its place is free a moment after the answer.
    let other = async || send(&router, keyed("/pay", "b"), "other").await;
    let answer = again_until(other, |answer| answer.problem() != Some("overloaded")).await;
    assert_eq!(answer.status, 201);
}

/// S22's draining. Fails when a closed tracker is not asked, and when a run has no token of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_tracker_means_draining_and_waits_for_runs_without_clients() {
    let (tracker, gate) = (TaskTracker::new(), Gate::closed());
    let router = gated(documented().tracker(tracker.clone()), gate.clone());
    let run = sending(&router, keyed("/pay", "a"), "");
    gate.entered().await;
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    tracker.close();
    let refused = send_unrun(&router, keyed("/pay", "b"), "", &gate).await;
    expect(&refused, "draining", &[], Some("1"), &json!({}));
    let mut ended = pin!(tracker.wait());
    assert!(poll!(ended.as_mut()).is_pending(), "the run goes on without its client");
    gate.release(1);
    timeout(PATIENCE, ended).await.expect("the run is over");
}

/// The store gives no answer to one verb.
struct Down(Verb);

impl Hook for Down {
    fn before(&self, verb: Verb) -> Hooking {
        lost_if(verb == self.0)
    }
}

/// Fails when the handler runs without a claim.
#[tokio::test]
async fn a_store_that_is_down_before_the_run_is_503_and_nothing_runs() {
    let gate = Gate::open();
    let store = Hooked::new(MemoryStore::new(), Arc::new(Down(Verb::Claim)));
    let router = gated(IdempotencyLayer::new(store).anonymous(true), gate.clone());
    expect(&send(&router, keyed("/pay", "k"), "").await, "store-unavailable", &[], Some("1"), &json!({}));
    assert_eq!(gate.entries(), 0);
}

/// S11. Fails when `claim_failed` takes a record that cannot be read for a store that is down, or runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_is_neither_run_nor_overwritten() {
    for damage in ["format = 2", "state = 9", "fingerprint = x'00'"] {
        let folder = tempfile::tempdir().unwrap();
        let store = idempotency_tests::stores::sqlite_in(&folder).await;
        let books = bank::open(folder.path().join("records.db").to_str().unwrap()).await;
        let gate = Gate::open();
        let router = gated(layer(&SharedStore::new(store)), gate.clone());
        assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 201);
        let update = format!("UPDATE idempotency_record SET {damage}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(update)).execute(&books).await.unwrap();
        for body in ["", "another request"] {
            expect_plain(&send(&router, keyed("/pay", "k"), body).await, "record-unreadable");
        }
        assert_eq!(gate.entries(), 1, "{damage}");
        let intact = format!("SELECT count(*) FROM idempotency_record WHERE {damage}");
        let intact: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(intact)).fetch_one(&books).await.unwrap();
        assert_eq!(intact, 1, "{damage} was overwritten");
    }
}

async fn panicking(State(()): State<()>) -> StatusCode {
    panic!("the handler's own")
}

/// S5. Fails when the panic is not caught, or its key is not freed.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_500_and_its_key_is_settled_by_policy() {
    for subject in all().await {
        for (unknown, then) in [(UnknownOutcome::Rerun, "handler-panicked"), (UnknownOutcome::Hold, "outcome-unknown")]
        {
            let layer = layer(&subject.store).unknown_outcome(unknown).documentation(DOCUMENTATION);
            let router = Router::new().route("/pay", any(panicking)).layer(layer).with_state(());
            let key = format!("{unknown:?}");
            expect_plain(&send(&router, keyed("/pay", &key), "").await, "handler-panicked");
            let retry = send(&router, keyed("/pay", &key), "").await;
            assert_eq!(retry.problem(), Some(then), "{}: {unknown:?}", subject.name);
        }
    }
}

/// Fails when the scheme is not looked at, or a principal does not help.
#[tokio::test]
async fn signatures_without_a_principal_are_refused_at_the_first_request() {
    let signed = || keyed("/pay", "k").header("authorization", "AWS4-HMAC-SHA256 Credential=a, Signature=b");
    let router = service(documented());
    expect_plain(&send(&router, signed(), "").await, "principal-required");
    let router = service(documented().principal(|_| Some("a".to_owned())));
    assert_eq!(send(&router, signed(), "").await.status, 201);
    let retried = keyed("/pay", "k").header("authorization", "AWS4-HMAC-SHA256 Credential=a, Signature=c");
    assert!(send(&router, retried, "").await.is_replay());
}

/// Fails when the name is a constant somewhere.
#[tokio::test]
async fn the_header_is_the_configured_one() {
    let router = service(documented().header(HeaderName::from_static("x-key")));
    let named = || Request::post("/pay").header("x-key", "k");
    assert_eq!(send(&router, named(), "").await.status, 201);
    assert!(send(&router, named(), "").await.is_replay());
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.problem(), Some("key-missing"));
}

/// Fails when any refusal goes round the hook, or the problem is not in the extensions of what it made.
#[tokio::test]
async fn problems_are_rendered_as_the_service_wants_them() {
    let words = documented().problem_response(in_words("here"));
    let router = Router::new().route("/pay", any(panicking)).layer(words).with_state(());
    for (request, code) in [(Request::post("/pay"), "key-missing"), (keyed("/pay", "k"), "handler-panicked")] {
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let problem = response.extensions().get::<Problem>().unwrap().clone();
        let answer = Answer::read(response).await;
        assert_eq!((answer.problem(), problem.code().as_str()), (Some(code), code));
        assert_eq!(answer.headers["content-type"], "text/plain");
        assert_eq!(answer.body, format!("here: {}", problem.detail()));
    }
}

/// Renders a problem as its detail, and says where.
fn in_words(place: &'static str) -> impl Fn(&Problem, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static {
    move |problem, response| {
        let mut rendered = Response::new(Bytes::from(format!("{place}: {}", problem.detail())));
        *rendered.status_mut() = problem.status();
        rendered.headers_mut().extend(response.headers().clone());
        rendered.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
        rendered
    }
}

/// Answers with the error of its transaction.
async fn candid(
    State(store): State<Hooked<SqliteStore>>,
    operation: Operation,
) -> Result<StatusCode, TransactionError> {
    drop(operation.transaction(&store).await?);
    Ok(StatusCode::CREATED)
}

/// By the layer that runs the handler. Fails when `Verdict::of` takes the response as it comes; when `render_answered` leaves
/// `Unrendered` in it, so that the layer outside renders it too; when it keeps the length that the router inside has set;
/// and when it drops the extensions, so that both layers hold the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_error_that_the_handler_answers_with_is_rendered_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Hooked::new(idempotency_tests::stores::sqlite_in(&folder).await, Arc::new(Down(Verb::Begin)));
    let routes = Router::new().route("/pay", any(candid)).with_state(store.clone());
    let json = IdempotencyLayer::new(store).anonymous(true).unknown_outcome(UnknownOutcome::Hold);
    let words = json.clone().problem_response(in_words("inside"));
    for (inside, key, start) in [(words, "k", "inside: "), (json, "l", "{")] {
        let outside = documented().unknown_outcome(UnknownOutcome::Hold).problem_response(in_words("outside"));
        let router = Router::new().fallback_service(inside.layer(routes.clone())).layer(outside);
        for _ in 0..2 {
            let answer = send(&router, keyed("/pay", key), "").await;
            assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("transaction-failed")));
            assert!(answer.body.starts_with(start.as_bytes()), "{answer:?}");
            let length = answer.headers.get("content-length").map(|length| length.to_str().unwrap().parse());
            assert!(length.is_none_or(|length| length == Ok(answer.body.len())), "{answer:?}");
        }
    }
}

async fn forgetful(State(store): State<Hooked<SqliteStore>>, operation: Operation) -> axum::response::Response {
    match operation.transaction(&store).await {
        Ok(transaction) => std::mem::forget(transaction),
        // What a handler makes of it that knows nothing of transactions.
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
    StatusCode::CREATED.into_response()
}

/// Fails when `Run::transaction` answers with the handler's own 500, or takes a transaction that is not back for none;
/// under Hold, when `Verdict::refused` holds, since neither is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_lost_or_not_given_is_told_and_its_key_is_free() {
    for (down, code, retry_after) in
        [(Verb::Hold, "transaction-lost", None), (Verb::Begin, "transaction-failed", Some("1"))]
    {
        let folder = tempfile::tempdir().unwrap();
        let store = Hooked::new(idempotency_tests::stores::sqlite_in(&folder).await, Arc::new(Down(down)));
        let layer = IdempotencyLayer::new(store.clone()).anonymous(true).unknown_outcome(UnknownOutcome::Hold);
        let router = Router::new().route("/pay", any(forgetful)).layer(layer).with_state(store);
        for _ in 0..2 {
            expect(&send(&router, keyed("/pay", "k"), "").await, code, &[], retry_after, &json!({}));
        }
    }
}

/// Fails when a result whose write was fenced is answered all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_a_lost_run_is_not_given() {
    for subject in embedded().await {
        let gate = Gate::closed();
        let router = gated(layer(&subject.store), gate.clone());
        let run = || {
            let router = router.clone();
            tokio::spawn(async move { send(&router, keyed("/pay", "k"), "").await })
        };
        let first = run();
        gate.entered().await;
        subject.hand.advance(Duration::from_secs(31));
        let second = run();
        gate.entered().await;
        gate.release(2);
        expect(&first.await.unwrap(), "lease-lost", &[], Some("1"), &json!({}));
        assert_eq!(second.await.unwrap().body, "entry 2, attempt 2", "{}", subject.name);
    }
}
