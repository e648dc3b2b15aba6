//! A process that is killed in mid-request: what the next one makes of it.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use idempotency_layer::store::{HeldCause, HeldRecord, LeaseId, Page, Resolution, Write};
use idempotency_layer::{SqliteStore, Store};
use idempotency_tests::failpoint::Point;
use idempotency_tests::provider::Provider;
use idempotency_tests::wire::Version;
use idempotency_tests::{bank, client};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::time::{sleep, timeout};

use crate::city::{City, receipt};

/// Short enough to wait for, long enough for a process to live with.
const LEASE: &[&str] = &["--lease", "500"];

/// S1. Fails when `machine::claim` takes a lapsed lease over with `record.attempt` instead of one more, or never; and
/// when `begin` commits what it has begun, so that the handler's effects are there before their record.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_claim_and_record_the_retry_is_attempt_two_and_takes_effect_once() {
    for point in [Point::AfterClaim, Point::Handler, Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        let mut doomed = city.bank_stopping_at(point, LEASE).await;
        let cut = city.send(&doomed, "k");
        doomed.line_after("failpoint ").await;
        assert_eq!(bank::running(&city.books).await, 1, "{point:?}");
        doomed.kill().await;
        assert!(cut.await.unwrap().is_err(), "{point:?}: a killed process has answered");
        city.assert_effects("k", 0).await;

        let heir = city.bank(LEASE).await;
        let answer = city.persist(&heir, "k").await;
        assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 2), "{point:?}");
        city.assert_effects("k", 1).await;
        assert!(city.persist(&heir, "k").await.is_replay(), "{point:?}");
        city.assert_effects("k", 1).await;
    }
}

/// S1 with an effect downstream. Fails when `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_a_call_downstream_the_retry_makes_it_under_the_same_key() {
    for point in [Point::Begun, Point::Effect, Point::BeforeRecord] {
        let (city, provider) = (City::new().await, Provider::start(Version::Http1).await);
        let url = provider.charges();
        let options = [LEASE, &["--provider", &url]].concat();
        let mut doomed = city.bank_stopping_at(point, &options).await;
        let _cut = city.send(&doomed, "k");
        doomed.line_after("failpoint ").await;
        assert_eq!((provider.received().len(), provider.ledger().len()), (1, 1), "{point:?}");
        doomed.kill().await;

        let heir = city.bank(&options).await;
        let answer = city.persist(&heir, "k").await;
        assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 2), "{point:?}");
        assert_eq!((provider.received().len(), provider.ledger().len()), (2, 1), "{point:?}");
        let received = provider.received();
        assert_eq!(received[0].keys, received[1].keys, "{point:?}");
        assert_ne!(received[0].keys, ["k"], "{point:?}: the client's key has left the service");
        city.assert_effects("k", 1).await;
        city.persist(&heir, "l").await;
        assert_eq!((provider.received().len(), provider.ledger().len()), (3, 2), "{point:?}");
    }
}

/// S1 under Hold. Fails when `machine::claim` obeys the policy of the new claim, or none.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_claim_and_record_under_hold_the_retry_gets_outcome_unknown() {
    for point in [Point::AfterClaim, Point::Handler, Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        let mut doomed = city.bank_stopping_at(point, &["--lease", "500", "--hold"]).await;
        let _cut = city.send(&doomed, "k");
        doomed.line_after("failpoint ").await;
        doomed.kill().await;

        // The heir would run it again; the claim was made under Hold.
        let heir = city.bank(LEASE).await;
        let answer = city.persist(&heir, "k").await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (409, Some("outcome-unknown")), "{point:?}");
        assert!(answer.body.contains("\"record\":\""), "{}", answer.body);
        city.assert_effects("k", 0).await;
    }
}

/// S1 under Hold, and no client comes back. Fails when `Record::is_held` is false of every run, and when
/// `Record::expires_at` gives a run under Hold an expiry.
#[tokio::test(flavor = "multi_thread")]
async fn killed_under_hold_the_key_is_listed_and_kept_until_an_operator_decides() {
    for point in [Point::AfterClaim, Point::Handler, Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        let mut doomed = city.bank_stopping_at(point, &["--lease", "500", "--retention", "1000", "--hold"]).await;
        let _cut = city.send(&doomed, "k");
        doomed.line_after("failpoint ").await;
        doomed.kill().await;

        let store = city.store().await;
        let found = until_held(&store).await;
        assert_eq!((found.cause, found.attempt), (HeldCause::Lapsed, 1), "{point:?}");
        // The clock of the file is the machine's: its last write is older than its retention after this.
        sleep(Duration::from_millis(1000)).await;
        assert_eq!(store.sweep().await.unwrap(), 0, "{point:?}");
        let kept: Vec<_> = held(&store).await.iter().map(|held| held.hold).collect();
        assert_eq!(kept, [found.hold], "{point:?}");

        assert_eq!(store.resolve(&found, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
        let heir = city.bank(LEASE).await;
        let answer = city.persist(&heir, "k").await;
        assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 2), "{point:?}");
        city.assert_effects("k", 1).await;
    }
}

/// Waits until a record is held, and claims nothing.
async fn until_held(store: &SqliteStore) -> HeldRecord {
    let waiting = async {
        loop {
            match held(store).await[..] {
                [held] => return held,
                _ => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    timeout(Duration::from_secs(30), waiting).await.unwrap()
}

async fn held(store: &SqliteStore) -> Vec<HeldRecord> {
    store.held(&Page::first(NonZeroU16::MAX)).await.unwrap().records
}

/// S2. Fails when `complete_in` commits the handler's effects without the record, and when `Run::commit` answers the
/// client before it.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_record_and_answer_the_retry_replays() {
    for point in [Point::AfterRecord, Point::Answer] {
        let city = City::new().await;
        let mut doomed = city.bank_stopping_at(point, LEASE).await;
        let cut = city.send(&doomed, "k");
        doomed.line_after("failpoint ").await;
        doomed.kill().await;
        assert!(cut.await.unwrap().is_err(), "{point:?}: a killed process has answered");
        city.assert_effects("k", 1).await;

        let heir = city.bank(LEASE).await;
        let answer = city.persist(&heir, "k").await;
        assert!(answer.is_replay(), "{point:?}: {answer:?}");
        assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 1), "{point:?}");
        city.assert_effects("k", 1).await;
    }
}

/// S26 with a real pause. A holder that stands still while another takes over is fenced when it goes on: the other one
/// runs on and is recorded. Fails when `machine::settle` asks only whether the record runs, not under which id, and when
/// `Operation::transaction` takes a fenced `begin` for one that a retry may get.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_that_was_overtaken_by_a_run_is_fenced_when_it_goes_on() {
    let city = City::new().await;
    let mut paused = city.bank_stopping_at(Point::Handler, LEASE).await;
    let late = city.send(&paused, "k");
    paused.line_after("failpoint ").await;
    paused.pause();

    let mut heir = city.bank_stopping_at(Point::Handler, LEASE).await;
    let (answer, ()) = tokio::join!(city.persist(&heir, "k"), async {
        heir.line_after("failpoint ").await;
        paused.resume();
        paused.release();
        let late = late.await.unwrap().unwrap();
        assert_eq!((late.status.as_u16(), late.problem()), (503, Some("lease-lost")));
        city.assert_effects("k", 0).await;
        heir.release();
    });
    assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 2));
    city.assert_effects("k", 1).await;
    assert!(city.persist(&heir, "k").await.is_replay());
}

/// As before, but the other one is done by then, and its record stays as it is. Fails when `machine::settle` takes every
/// write, and when `Operation::transaction` takes a fenced `begin` for one that a retry may get.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_that_was_overtaken_by_a_record_is_fenced_when_it_goes_on() {
    let city = City::new().await;
    let mut paused = city.bank_stopping_at(Point::Handler, LEASE).await;
    let late = city.send(&paused, "k");
    paused.line_after("failpoint ").await;
    paused.pause();

    let heir = city.bank(LEASE).await;
    let answer = city.persist(&heir, "k").await;
    assert_eq!((answer.status.as_u16(), receipt(&answer).attempt), (201, 2));

    paused.resume();
    paused.release();
    let late = late.await.unwrap().unwrap();
    assert_eq!((late.status.as_u16(), late.problem()), (503, Some("lease-lost")));
    assert_eq!(receipt(&city.persist(&heir, "k").await), receipt(&answer));
    city.assert_effects("k", 1).await;
}

/// The write lock is the lease: a holder that stands still inside its transaction cannot be overtaken. Fails when
/// `begin` commits what it has begun, which lets go of the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_paused_inside_its_transaction_is_not_overtaken_and_commits() {
    for point in [Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        let other = city.bank(LEASE).await;
        let mut paused = city.bank_stopping_at(point, LEASE).await;
        let late = city.send(&paused, "k");
        paused.line_after("failpoint ").await;
        paused.pause();

        // In flight until the lease has lapsed; the claim after that waits for the file's write lock, and gives up.
        let refused = loop {
            let answer = city.send(&other, "k").await.unwrap().unwrap();
            if answer.problem() != Some("in-flight") {
                break answer;
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(refused.problem(), Some("store-unavailable"), "{point:?}: {refused:?}");

        paused.resume();
        paused.release();
        let late = late.await.unwrap().unwrap();
        assert_eq!((late.status.as_u16(), receipt(&late).attempt), (201, 1), "{point:?}");
        let answer = city.persist(&other, "k").await;
        assert!(answer.is_replay() && receipt(&answer) == receipt(&late), "{point:?}");
        city.assert_effects("k", 1).await;
    }
}

/// S7. Fails when the writer in `SqliteStore::claim` relies on what the reader saw, an absent record, and when
/// `machine::claim` takes over a lease that has not lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn of_64_claims_from_two_processes_one_runs() {
    let city = City::new().await;
    let slow = &["--delay", "400"];
    let banks = [city.bank(slow).await, city.bank(slow).await];
    let barrier = Arc::new(Barrier::new(64));
    let claims: Vec<_> = (0..64)
        .map(|at| {
            let (client, barrier) = (city.client.clone(), barrier.clone());
            let url = format!("{}/transfers", banks[at % 2].url());
            let order = json!({ "reference": "k", "from": 1, "to": 2, "amount": 10 });
            tokio::spawn(async move {
                barrier.wait().await;
                client::post(&client, &url, "k", &order).await.unwrap()
            })
        })
        .collect();
    let (mut runs, mut in_flight) = (Vec::new(), 0);
    for claim in claims {
        let answer = claim.await.unwrap();
        match (answer.status.as_u16(), answer.problem()) {
            (201, None) if !answer.is_replay() => runs.push(answer),
            (201, None) => {}
            (409, Some("in-flight")) => in_flight += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runs.len(), 1);
    assert!(in_flight > 0, "no claim overlapped with the run");
    city.assert_effects("k", 1).await;
    for bank in &banks {
        let replay = city.persist(bank, "k").await;
        assert!(replay.is_replay() && replay.body == runs[0].body);
    }
}

/// S29. Fails when `machine::claim` counts no lapses, or holds at one more or less.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_kills_its_process_each_time_is_held_after_its_last_attempt() {
    let city = City::new().await;
    let options = &["--lease", "300", "--max-attempts", "3"];
    for _ in 0..3 {
        let mut doomed = city.bank_stopping_at(Point::Handler, options).await;
        // Its claim takes over from the last one once that has lapsed.
        let persisting = city.persisting(&doomed, "k");
        doomed.line_after("failpoint ").await;
        persisting.abort();
        doomed.kill().await;
    }
    let heir = city.bank(options).await;
    let answer = city.persist(&heir, "k").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, Some("outcome-unknown")));
    city.assert_effects("k", 0).await;
}
