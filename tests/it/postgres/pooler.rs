//! Behind PgBouncer 1.18 in transaction mode, whose four sessions change hands all the time: no verb and no handler's
//! statement meets what another has left in a session.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use idempotency_layer::store::{
    Acquired, Begin, Claim, ClaimRequest, Commit, Lease, PostgresTransaction, Renewal, Write,
};
use idempotency_layer::{PostgresStore, Store, TransactionalStore};
use idempotency_tests::postgres::{PgBouncer, PostgresServer, shared, url_at};
use idempotency_tests::proxy::{Proxy, Request};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Decode, Encode, Postgres, Type};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::records::{answer, request};

const STATEMENTS: u64 = 24_000;
const TASKS: usize = 8;

/// Without one error, and without one value that is another statement's. Fails when `ask::run` leaves out
/// `persistent(false)`, or the transaction around the statement; when `PostgresStore::end` leaves out
/// `clear_cached_statements`; and when `begin` leaves out `DEALLOCATE ALL`.
#[tokio::test(flavor = "multi_thread")]
async fn through_an_old_pooler_24_000_statements_of_8_tasks_get_their_own_answers() {
    let server = PostgresServer::start().await;
    let bouncer = PgBouncer::start_with(server.address(), &[("default_pool_size", "4")]).await;
    let url = bouncer.url("postgres");
    // As in two processes.
    let stores = [open(&url).await, open(&url).await];
    server.execute(TABLES).await;

    let is_over = Arc::new(AtomicBool::new(false));
    let neighbour = tokio::spawn(neighbour(bouncer, Arc::clone(&is_over)));
    let barrier = Arc::new(Barrier::new(TASKS));
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let task = Task::new(number, &stores[number % 2]);
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            barrier.wait().await;
            task.run().await
        });
    }
    let (mut sent, mut effects) = (0, 0);
    while let Some(done) = tasks.join_next().await {
        let task = done.unwrap();
        sent += task.sent;
        effects += task.effects;
    }
    is_over.store(true, Ordering::SeqCst);
    let left = neighbour.await.unwrap();
    assert!(left > 100, "the neighbour has left {left} statements");
    assert_eq!(server.fetch::<i64>("SELECT count(*) FROM effect").await, effects);
    assert_eq!(server.fetch::<i64>("SELECT count(DISTINCT key) FROM effect").await, effects);
    assert!(sent >= STATEMENTS);
}

/// A process that is gone without a word, or stands still, between a verb's statement and its COMMIT. Fails when `ask::run`
/// sets no `idle_in_transaction_session_timeout`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_stands_still_before_its_commit_keeps_its_key_no_longer_than_its_timeout() {
    let server = shared().await;
    server.create_database("stands_still").await;
    let bouncer = PgBouncer::start(server).await;
    let proxy = Proxy::start(bouncer.address()).await;
    let store = open(&bouncer.url("stands_still")).await;
    let still = PostgresStore::legacy_pooler(&url_at(proxy.address(), "stands_still")).await.unwrap();
    let still = still.timeout(Duration::from_millis(500));

    let held = proxy.hold_request(Request::With("COMMIT"));
    let first = request("k");
    // From here on nobody asks it how far it is, so that it gives nothing up.
    let mut claim = pin!(still.claim(&first));
    tokio::select! {
        claim = &mut claim => panic!("nothing was held: {claim:?}"),
        () = held.struck() => {}
    }
    let claimed = timeout(Duration::from_secs(10), store.claim(&request("k"))).await.expect("the key is kept");
    assert!(matches!(claimed.unwrap(), Claim::Acquired(Acquired { attempt: 1, .. })));
}

async fn open(url: &str) -> PostgresStore {
    let store = PostgresStore::legacy_pooler(url).await.unwrap().timeout(Duration::from_secs(20));
    store.migrate().await.unwrap();
    store
}

/// A program that prepares statements in sessions which others have next, under the names that the driver gives. It says how
/// many it has left there.
async fn neighbour(bouncer: PgBouncer, is_over: Arc<AtomicBool>) -> u64 {
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(bouncer.options("postgres"));
    let mut left = 0;
    while !is_over.load(Ordering::SeqCst) {
        for name in 1..=4 {
            // Whoever has prepared under this name before is in this one's way.
            let prepare = format!("PREPARE sqlx_s_{name} AS SELECT -{name}::bigint");
            left += u64::from(sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&pool).await.is_ok());
        }
    }
    left
}

/// One that claims, runs and is answered, key after key.
struct Task {
    store: PostgresStore,
    random: StdRng,
    number: usize,
    keys: u64,
    /// Verbs, and statements of handlers.
    sent: u64,
    effects: i64,
}

/// How a run ends.
#[derive(Clone, Copy)]
enum End {
    Completed,
    Freed,
    Forgotten,
    Committed,
    /// After a statement whose future was dropped.
    CommittedAfterADrop,
    /// Whose `complete_in` was dropped on its way.
    CommitDropped,
    RolledBack,
    /// By a statement that has failed.
    Aborted,
    Dropped,
}

impl Task {
    fn new(number: usize, store: &PostgresStore) -> Self {
        let random = StdRng::seed_from_u64(number as u64);
        Self { store: store.clone(), random, number, keys: 0, sent: 0, effects: 0 }
    }

    async fn run(mut self) -> Self {
        while self.sent < STATEMENTS / TASKS as u64 {
            self.keys += 1;
            let key = format!("{} of {}", self.keys, self.number);
            let end = ENDS[self.random.random_range(0..ENDS.len())];
            self.key(&key, end).await;
        }
        self
    }

    /// One key, from its claim to its replay.
    async fn key(&mut self, key: &str, end: End) {
        let request = request(key);
        let lease = &request.lease;
        if self.random.random_bool(0.1) {
            self.sent += 1;
            dropped(self.store.claim(&request), self.random.random_range(0..6)).await;
        }
        self.claims(&request, 1).await;
        for _ in 0..self.random.random_range(0..3) {
            self.sent += 1;
            assert!(matches!(self.store.renew(lease).await.unwrap(), Renewal::Renewed { .. }), "{key}");
        }
        match end {
            End::Completed => self.completes(&request, key).await,
            End::Freed => {
                self.releases(lease).await;
                let again = self::request(key);
                self.claims(&again, 2).await;
                self.completes(&again, key).await;
            }
            End::Forgotten => {
                self.sent += 1;
                assert_eq!(self.store.forget(lease).await.unwrap(), Write::Done);
                self.claims(&request, 1).await;
                self.completes(&request, key).await;
            }
            _ if self.commits(&request, key, end).await => {
                self.effects += 1;
                self.is_replayed(key).await;
            }
            _ => self.releases(lease).await,
        }
    }

    /// Whether there is an effect.
    async fn commits(&mut self, request: &ClaimRequest, key: &str, end: End) -> bool {
        let lease = &request.lease;
        self.sent += 1;
        let Begin::Begun(mut transaction) = self.store.begin(lease).await.unwrap() else { panic!("{key} is fenced") };
        self.acts(&mut transaction, key, end).await;
        self.sent += 1;
        match end {
            End::RolledBack => {
                self.store.rollback(transaction).await;
                false
            }
            End::Dropped => {
                drop(transaction);
                false
            }
            End::CommitDropped => {
                let completion = answer(key);
                let completing = self.store.complete_in(transaction, lease, &completion);
                dropped(completing, self.random.random_range(0..8)).await;
                self.sent += 1;
                match self.store.confirm(lease).await.unwrap() {
                    Commit::Committed => true,
                    Commit::Aborted => false,
                    other => panic!("{key}: {other:?}"),
                }
            }
            _ => {
                let commit = self.store.complete_in(transaction, lease, &answer(key)).await.unwrap();
                let expected = if matches!(end, End::Aborted) { Commit::Lost } else { Commit::Committed };
                assert_eq!(commit, expected, "{key}");
                commit == Commit::Committed
            }
        }
    }

    /// What a handler does.
    async fn acts(&mut self, transaction: &mut PostgresTransaction, key: &str, end: End) {
        let mut connection = transaction.connection().await.unwrap();
        for _ in 0..3 {
            self.asks(&mut connection).await;
        }
        self.sent += 1;
        sqlx::query("INSERT INTO effect (key) VALUES ($1)").bind(key).execute(&mut *connection).await.unwrap();
        match end {
            End::Aborted => {
                self.sent += 2;
                let fails =
                    sqlx::query_scalar::<_, i64>("SELECT 7 / $1::bigint").bind(0_i64).fetch_one(&mut *connection);
                assert_eq!(code(fails.await.unwrap_err()), "22012");
                let refused = sqlx::query_scalar::<_, i64>("SELECT $1").bind(7_i64).fetch_one(&mut *connection).await;
                assert_eq!(code(refused.unwrap_err()), "25P02");
            }
            End::CommittedAfterADrop => {
                self.sent += 1;
                let polls = self.random.random_range(0..4);
                dropped(sqlx::query("SELECT pg_sleep($1)").bind(0.001).execute(&mut *connection), polls).await;
                self.asks(&mut connection).await;
            }
            _ => {}
        }
    }

    /// Sends one of many statements, some of which take and give the same types. It is prepared, and sent once more.
    async fn asks(&mut self, connection: &mut PgConnection) {
        let (number, by) = (self.random.random_range(0..1_000_000_i64), self.random.random_range(1..9_i64));
        let kind = self.random.random_range(0..7);
        for number in [number, number + 1] {
            self.sent += 1;
            match kind {
                0 => asks(connection, format!("SELECT $1::bigint * {by}"), number, number * by).await,
                1 => asks(connection, format!("SELECT $1::bigint + {by}"), number, number + by).await,
                2 => asks(connection, format!("SELECT $1::int + {by}"), number as i32, (number + by) as i32).await,
                3 => {
                    asks(connection, format!("SELECT $1::text || '{by}'"), number.to_string(), format!("{number}{by}"))
                        .await
                }
                4 => {
                    asks(connection, format!("SELECT $1::float8 / {by}"), number as f64, number as f64 / by as f64)
                        .await
                }
                5 => asks(connection, format!("SELECT $1::bigint % {by} = 0"), number, number % by == 0).await,
                _ => {
                    let (bytes, by) = (number.to_be_bytes().to_vec(), by as u8);
                    let expected = [&bytes[..], &[by]].concat();
                    asks(connection, format!("SELECT $1::bytea || '\\x{by:02x}'::bytea"), bytes, expected).await;
                }
            }
        }
    }

    async fn claims(&mut self, request: &ClaimRequest, expected: u32) {
        self.sent += 1;
        match self.store.claim(request).await.unwrap() {
            Claim::Acquired(Acquired { attempt, .. }) => assert_eq!(attempt, expected),
            other => panic!("{other:?}"),
        }
    }

    async fn releases(&mut self, lease: &Lease) {
        self.sent += 1;
        assert_eq!(self.store.release(lease).await.unwrap(), Write::Done);
    }

    async fn completes(&mut self, request: &ClaimRequest, key: &str) {
        self.sent += 1;
        assert_eq!(self.store.complete(&request.lease, &answer(key)).await.unwrap(), Write::Done);
        self.is_replayed(key).await;
    }

    async fn is_replayed(&mut self, key: &str) {
        self.sent += 1;
        let retry = self::request(key);
        match self.store.claim(&retry).await.unwrap() {
            Claim::Recorded(recorded) => assert_eq!(recorded.response.body, key),
            other => panic!("{key}: {other:?}"),
        }
    }
}

async fn asks<P, R>(connection: &mut PgConnection, text: String, value: P, expected: R)
where
    P: for<'q> Encode<'q, Postgres> + Type<Postgres> + Send + 'static,
    R: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin + PartialEq + Debug,
{
    let answer: R = sqlx::query_scalar(AssertSqlSafe(&*text)).bind(value).fetch_one(connection).await.unwrap();
    assert_eq!(answer, expected, "{text}");
}

fn code(error: sqlx::Error) -> String {
    let error = error.into_database_error().expect("an error of the server's");
    error.code().expect("a code").into_owned()
}

/// Polls a future so often, and drops it.
async fn dropped(future: impl Future, mut polls: u32) {
    let mut future = pin!(future);
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        future.as_mut().poll(context).map(drop)
    })
    .await;
}

const ENDS: [End; 12] = [
    End::Completed,
    End::Completed,
    End::Freed,
    End::Forgotten,
    End::Committed,
    End::Committed,
    End::Committed,
    End::CommittedAfterADrop,
    End::CommitDropped,
    End::RolledBack,
    End::Aborted,
    End::Dropped,
];

const TABLES: &str = "CREATE TABLE effect (key text NOT NULL)";
