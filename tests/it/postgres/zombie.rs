//! A process that stands still inside its handler's transaction past its lease, is overtaken, and goes on.
//!
//! Its transaction holds what the handler has locked, and the record's row only from the completion's statement on. Until then
//! another process takes the key over.

use std::time::{Duration, Instant};

use idempotency_tests::bank::Receipt;
use idempotency_tests::client::{self, Answer};
use idempotency_tests::failpoint::Point;
use idempotency_tests::server::Server;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::city::City;

/// Overtaken by one that runs. Fails when `COMPLETE_IN` does not ask for `r.lease = $2`, and when `unless_overtaken` tells
/// nobody that it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_was_overtaken_by_a_run_commits_nothing_when_it_goes_on() {
    for point in [Point::Begun, Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        let (zombie, late) = city.stopped_at(point, PATIENT).await;

        let mut heir = city.bank_stopping_at(Point::Handler, PATIENT).await;
        let answer = city.persisting(&heir);
        heir.line_after("failpoint ").await;
        assert_eq!(city.idle_transactions().await, 1, "{point:?}: the zombie's transaction is over");
        zombie.resume();
        zombie.release();
        assert_is_fenced(late, point).await;
        assert_eq!(city.effects_of_k().await, 0, "{point:?}");

        heir.release();
        city.assert_paid_once_by_the_second_run(&answer.await.unwrap()).await;
    }
}

/// Overtaken by one that is done. What the zombie has locked is free once its session has ended. Fails when `begin` sets no
/// `idle_in_transaction_session_timeout`, so that the heir waits for ever, and when `unless_overtaken` tells
/// nobody that it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_was_overtaken_by_a_record_commits_nothing_when_it_goes_on() {
    for point in [Point::Begun, Point::Effect, Point::BeforeRecord] {
        let city = City::new().await;
        // Without any effect it is in nobody's way, and it is there to the end.
        let options = if point == Point::Begun { PATIENT } else { IMPATIENT };
        let (zombie, late) = city.stopped_at(point, options).await;

        let heir = city.bank(PATIENT).await;
        let answer = city.persisting(&heir).await.unwrap();
        city.assert_paid_once_by_the_second_run(&answer).await;
        let zombies_transactions = i64::from(point == Point::Begun);
        assert_eq!(city.idle_transactions().await, zombies_transactions, "{point:?}");

        zombie.resume();
        zombie.release();
        assert_is_fenced(late, point).await;
        city.assert_paid_once_by_the_second_run(&city.persisting(&zombie).await.unwrap()).await;
    }
}

/// Stopped between the completion's statement and COMMIT: it holds the record's row. Fails when `CLAIM` inserts where there
/// is a row, and when `SEEN` waits for a row that is locked, so that others get 503; when `begin` sets no `idle_in_transaction_session_timeout`; and when what is told of a
/// COMMIT on a connection that has ended is taken for success.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_before_its_commit_keeps_the_key_in_flight_until_its_session_ends() {
    let city = City::new().await;
    let zombie = city.bank(&["--lease", "500", "--max-idle", "3000"]).await;
    let mut gate = city.stop_records_at_a_gate().await;
    let late = city.sending(&zombie);
    city.until(WAITING).await;
    zombie.pause();
    // The statement comes to its end, and nobody reads that.
    gate.open().await;
    city.until(IDLE).await;

    let heir = city.bank(PATIENT).await;
    let (mut in_flight_past_its_lease, begun) = (0, Instant::now());
    let answer = loop {
        let has_lapsed: bool = sqlx::query_scalar(LAPSED).fetch_one(&city.books).await.unwrap();
        let is_locked = city.idle_transactions().await == 1;
        let answer = city.sending(&heir).await.unwrap().unwrap();
        if answer.status == 201 {
            break answer;
        }
        assert_eq!((answer.status.as_u16(), answer.problem()), (409, Some("in-flight")));
        in_flight_past_its_lease += u32::from(has_lapsed && is_locked);
        assert!(begun.elapsed() < PATIENCE, "a key that never gets its answer");
        sleep(Duration::from_millis(25)).await;
    };
    assert!(in_flight_past_its_lease > 1, "told so {in_flight_past_its_lease} times");
    assert_eq!(city.idle_transactions().await, 0, "taken over under its lock");
    city.assert_paid_once_by_the_second_run(&answer).await;

    zombie.resume();
    assert_is_fenced(late, "before COMMIT").await;
    city.assert_paid_once_by_the_second_run(&city.persisting(&zombie).await.unwrap()).await;
}

/// Stopped after it has sent COMMIT: that stands, and others replay it. Fails when `CLAIM` inserts where there is a row, and
/// when `SEEN` waits for a row that is locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_zombie_that_has_sent_its_commit_has_committed() {
    let city = City::new().await;
    let zombie = city.bank(IMPATIENT).await;
    let mut gate = city.stop_commits_at_a_gate().await;
    let late = city.sending(&zombie);
    city.until(WAITING).await;
    zombie.pause();
    let heir = city.bank(PATIENT).await;
    city.until(LAPSED).await;
    let refused = city.sending(&heir).await.unwrap().unwrap();
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, Some("in-flight")));
    gate.open().await;

    let answer = city.persisting(&heir).await.unwrap();
    assert!(answer.is_replay() && receipt(&answer).attempt == 1, "{answer:?}");
    zombie.resume();
    let late = late.await.unwrap().unwrap();
    assert_eq!((late.status.as_u16(), receipt(&late)), (201, receipt(&answer)));
    assert_eq!(city.effects_of_k().await, 1);
}

/// The zombie's client gets neither success nor a wait.
async fn assert_is_fenced(late: JoinHandle<reqwest::Result<Answer>>, at: impl std::fmt::Debug) {
    let late = late.await.unwrap().unwrap();
    assert_eq!((late.status.as_u16(), late.problem()), (503, Some("lease-lost")), "{at:?}");
}

fn receipt(answer: &Answer) -> Receipt {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn order() -> Value {
    json!({ "reference": "k", "from": 1, "to": 2, "amount": 10 })
}

fn url(bank: &Server) -> String {
    format!("{}/transfers", bank.url())
}

impl City {
    /// A bank that stands still at the point, and past its lease, with the request that it has in hand.
    async fn stopped_at(&self, point: Point, options: &[&str]) -> (Server, JoinHandle<reqwest::Result<Answer>>) {
        let mut zombie = self.bank_stopping_at(point, options).await;
        let late = self.sending(&zombie);
        zombie.line_after("failpoint ").await;
        zombie.pause();
        self.until(LAPSED).await;
        (zombie, late)
    }

    fn sending(&self, bank: &Server) -> JoinHandle<reqwest::Result<Answer>> {
        let (client, url) = (self.client.clone(), url(bank));
        tokio::spawn(async move { client::post(&client, &url, "k", &order()).await })
    }

    fn persisting(&self, bank: &Server) -> JoinHandle<Answer> {
        let (client, url) = (self.client.clone(), url(bank));
        tokio::spawn(async move {
            let order = order();
            let persisted = client::persist(&client, || url.clone(), "k", &order);
            timeout(PATIENCE, persisted).await.expect("a key that never gets its answer")
        })
    }

    async fn assert_paid_once_by_the_second_run(&self, answer: &Answer) {
        assert_eq!((answer.status.as_u16(), receipt(answer).attempt), (201, 2));
        assert_eq!(self.effects_of_k().await, 1);
    }

    async fn effects_of_k(&self) -> i64 {
        self.effects().await.get("k").copied().unwrap_or(0)
    }

    /// Sessions that stand still inside a transaction.
    async fn idle_transactions(&self) -> i64 {
        sqlx::query_scalar(IDLE_TRANSACTIONS).fetch_one(&self.books).await.unwrap()
    }

    /// Waits until the database says so.
    async fn until(&self, what: &'static str) {
        let is_so = async {
            while !sqlx::query_scalar::<_, bool>(what).fetch_one(&self.books).await.unwrap() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, is_so).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Has the statement that records an answer wait inside the server.
    async fn stop_records_at_a_gate(&self) -> Gate {
        self.gate("CREATE TRIGGER gate AFTER UPDATE ON idempotency_record FOR EACH ROW WHEN (new.state = 2)").await
    }

    /// Has a COMMIT of a transfer wait inside the server.
    async fn stop_commits_at_a_gate(&self) -> Gate {
        let trigger =
            "CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON transfer DEFERRABLE INITIALLY DEFERRED FOR EACH ROW";
        self.gate(trigger).await
    }

    async fn gate(&self, trigger: &str) -> Gate {
        let create = format!(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql \
             AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END'; {trigger} EXECUTE FUNCTION wait(); \
             SELECT pg_advisory_lock(1)"
        );
        let mut connection = self.books.acquire().await.unwrap().detach();
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
        Gate { connection: Some(connection) }
    }
}

/// Closed until it is opened, for whatever comes to it in the server.
struct Gate {
    connection: Option<PgConnection>,
}

impl Gate {
    async fn open(&mut self) {
        self.connection.take().unwrap().close().await.unwrap();
    }
}

/// No session is ended for its idleness.
const PATIENT: &[&str] = &["--lease", "500"];

/// Sessions end soon after the lease.
const IMPATIENT: &[&str] = &["--lease", "500", "--max-idle", "1500"];

const IDLE_TRANSACTIONS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";

const IDLE: &str = "SELECT count(*) = 1 FROM pg_stat_activity \
     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";

const WAITING: &str = "SELECT count(*) = 1 FROM pg_stat_activity \
     WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'";

/// The lease of the one record, renewed or not.
const LAPSED: &str = "SELECT greatest(r.lease_until, l.lease_until) < date_part('epoch', clock_timestamp()) * 1000 \
     FROM idempotency_record r LEFT JOIN idempotency_lease l ON l.lease = r.lease AND l.claimed_at = r.claimed_at";

const PATIENCE: Duration = Duration::from_secs(20);
