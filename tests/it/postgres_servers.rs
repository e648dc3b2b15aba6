//! The PostgreSQL servers and the PgBouncer that tests stand on: they come back where they were, and none outlives its test.

use std::path::Path;
use std::time::{Duration, Instant};

use idempotency_tests::postgres::{PgBouncer, PostgresServer, shared, url_at};
use idempotency_tests::proxy::{Proxy, Request};
use idempotency_tests::server::Server;
use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool, Row};
use tokio::time::timeout;

/// Fails when the keeper empties the folder in `stop`, and when `stop` reads no children: they notice only later.
#[tokio::test]
async fn a_killed_and_restarted_server_has_its_port_and_what_was_committed() {
    let postgres = PostgresServer::start().await;
    let (url, processes) = (postgres.url(), postgres.processes());
    postgres.execute("CREATE TABLE kept (k int); INSERT INTO kept VALUES (1)").await;
    let mut open = postgres.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; INSERT INTO kept VALUES (2)").execute(&mut open).await.unwrap();
    postgres.kill();
    assert_eq!(there(&processes), []);
    postgres.restart().await;
    assert_eq!(postgres.url(), url);
    assert_eq!(postgres.fetch::<Vec<i32>>("SELECT array_agg(k) FROM kept").await, [1]);
    assert!(postgres.log().contains("automatic recovery"), "{}", postgres.log());
}

/// Fails when `pause` in the keeper stops the server only.
#[tokio::test]
async fn a_paused_server_answers_on_no_connection_until_it_is_resumed() {
    let postgres = PostgresServer::start().await;
    let mut open = postgres.connect().await.unwrap();
    postgres.pause();
    let mut answer = Box::pin(sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut open));
    let mut connected = Box::pin(postgres.connect());
    let early = timeout(Duration::from_millis(50), &mut answer).await;
    assert!(early.is_err(), "a paused server has answered {early:?}");
    assert!(timeout(Duration::from_millis(50), &mut connected).await.is_err());
    postgres.resume();
    assert_eq!(answer.await.unwrap(), 1);
    connected.await.unwrap();
}

/// Fails when the keeper leaves its loop without `stop`, and when it leaves the folder.
#[tokio::test]
async fn a_server_does_not_outlive_its_handle() {
    let postgres = PostgresServer::start().await;
    let bouncer = PgBouncer::start(&postgres).await;
    let processes = [postgres.processes(), vec![bouncer.id()]].concat();
    let folders = [postgres.folder().to_owned(), bouncer.folder().to_owned()];
    assert!(folders.iter().all(|folder| folder.exists()));
    assert!(there(&processes).len() > 2);
    drop((postgres, bouncer));
    assert_eq!(there(&processes), []);
    assert!(!folders.iter().any(|folder| folder.exists()));
}

/// Fails when the keeper's `stop` does not kill the children: those that stand still do not see that the server is gone.
#[test]
fn a_paused_server_does_not_outlive_a_test_that_panics() {
    let panicked = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let postgres = PostgresServer::start().await;
            postgres.pause();
            std::panic::panic_any(postgres.processes());
        });
    });
    let processes = *panicked.join().unwrap_err().downcast::<Vec<Pid>>().unwrap();
    assert!(processes.len() > 1);
    assert_eq!(there(&processes), []);
}

/// Fails when the keeper ignores the end of its standard input: `while :; do read -r order`; and, where the server stands
/// still, when the keeper is in a process group of its own rather than in a session.
#[tokio::test]
async fn a_server_does_not_outlive_a_process_that_is_killed() {
    for kind in ["postgres", "paused-postgres"] {
        let mut orphan = Server::start(Path::new(env!("CARGO_BIN_EXE_orphan")), [kind]).await;
        let line = orphan.line_after("server ").await;
        let processes: Vec<Pid> = line.split(' ').map(|id| Pid::from_raw(id.parse().unwrap())).collect();
        assert!(there(&processes).len() > 1);
        orphan.kill().await;
        // Nobody waits for it any more but its keeper.
        let killed = Instant::now();
        while !there(&processes).is_empty() {
            assert!(killed.elapsed() < Duration::from_secs(20), "the server lives on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Fails when `stop` sends SIGQUIT, after which there is something to recover; SIGTERM waits for the connection for ever.
#[tokio::test]
async fn a_stopped_server_ends_its_connections_and_has_nothing_to_recover() {
    let postgres = PostgresServer::start().await;
    let mut open = postgres.connect().await.unwrap();
    postgres.stop().await;
    assert!(open.ping().await.is_err());
    assert!(postgres.connect().await.is_err());
    postgres.restart().await;
    assert!(!postgres.log().contains("automatic recovery"), "{}", postgres.log());
}

/// Fails when `TERMINATE` cancels queries: `pg_cancel_backend(pid)`.
#[tokio::test]
async fn terminated_connections_end_and_others_begin() {
    let postgres = PostgresServer::start().await;
    let (mut one, mut two) = (postgres.connect().await.unwrap(), postgres.connect().await.unwrap());
    assert_eq!(postgres.terminate_backends().await, 2);
    for connection in [&mut one, &mut two] {
        assert!(connection.ping().await.is_err());
    }
    assert_eq!(postgres.terminate_backends().await, 0);
}

/// Fails when `url_at` has no password, when `INITIALIZE` says `trust`, and when `create_database` gives the server's own URL.
#[tokio::test(flavor = "multi_thread")]
async fn tests_that_share_a_server_have_databases_of_their_own_and_need_its_password() {
    let (one, two) =
        tokio::join!(shared().await.create_database("servers_one"), shared().await.create_database("servers_two"));
    for url in [&one, &two] {
        let pool = PgPool::connect(url).await.unwrap();
        sqlx::query("CREATE TABLE mine ()").execute(&pool).await.unwrap();
    }
    let wrong: PgConnectOptions = one.parse().unwrap();
    let refused = PgConnection::connect_with(&wrong.password("wrong")).await.unwrap_err();
    assert_eq!(refused.into_database_error().unwrap().code().unwrap(), "28P01");
}

/// Fails when `start_on` puts the caller's settings before those of the harness.
#[tokio::test]
async fn a_server_has_the_settings_that_it_is_started_with() {
    let postgres = PostgresServer::start_with(&[("max_connections", "7"), ("lock_timeout", "3s")]).await;
    assert_eq!(postgres.fetch::<String>("SHOW max_connections").await, "7");
    assert_eq!(postgres.fetch::<String>("SHOW lock_timeout").await, "3s");
    assert_eq!(postgres.fetch::<String>("SHOW synchronous_commit").await, "on");
    assert_eq!(postgres.fetch::<String>("SHOW server_encoding").await, "UTF8");
    assert_eq!(postgres.fetch::<String>("SHOW lc_collate").await, "C");
}

/// Fails when `pool_mode` is `session`.
#[tokio::test]
async fn clients_of_a_bouncer_have_one_backend_in_turn_and_what_others_left_in_it() {
    let settings = [("default_pool_size", "1"), ("query_wait_timeout", "20")];
    let bouncer = PgBouncer::start_with(shared().await.address(), &settings).await;
    let mut one = PgConnection::connect_with(&bouncer.options("postgres")).await.unwrap();
    let mut two = PgConnection::connect_with(&bouncer.options("postgres")).await.unwrap();
    let own = backend(&mut one).await;
    assert_eq!(backend(&mut two).await, own);

    // What is of a session is of whoever has the backend next.
    sqlx::raw_sql("SET lock_timeout = '3s'; PREPARE prepared AS SELECT 1").execute(&mut one).await.unwrap();
    let mut settings = two.begin().await.unwrap();
    let seen: String = sqlx::query_scalar("SHOW lock_timeout").fetch_one(&mut *settings).await.unwrap();
    assert_eq!(seen, "3s");
    let refused = sqlx::raw_sql("PREPARE prepared AS SELECT 1").execute(&mut *settings).await.unwrap_err();
    assert_eq!(refused.into_database_error().unwrap().code().unwrap(), "42P05");
    settings.rollback().await.unwrap();

    // A transaction has it to its end.
    let mut transaction = one.begin().await.unwrap();
    assert_eq!(backend(&mut transaction).await, own);
    let mut waits = Box::pin(backend(&mut two));
    assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
    transaction.commit().await.unwrap();
    assert_eq!(waits.await, own);
}

/// Fails when the configuration has `ignore_startup_parameters = extra_float_digits`.
#[tokio::test]
async fn a_bouncer_refuses_what_debian_has_it_refuse() {
    let bouncer = PgBouncer::start(shared().await).await;
    let refused = PgConnection::connect(&bouncer.url("postgres")).await.unwrap_err();
    assert!(refused.to_string().contains("unsupported startup parameter: extra_float_digits"), "{refused}");
}

/// Fails when `kill`, `pause` or `restart` of the bouncer does nothing.
#[tokio::test]
async fn a_bouncer_is_killed_restarted_paused_and_resumed() {
    let bouncer = PgBouncer::start(shared().await).await;
    let options = bouncer.options("postgres");
    let mut open = PgConnection::connect_with(&options).await.unwrap();
    bouncer.kill();
    assert!(open.ping().await.is_err());
    assert!(PgConnection::connect_with(&options).await.is_err());
    bouncer.restart().await;
    let mut open = bouncer.pool("postgres").acquire().await.unwrap();
    bouncer.pause();
    let mut answer = Box::pin(backend(&mut open));
    assert!(timeout(Duration::from_millis(50), &mut answer).await.is_err());
    bouncer.resume();
    answer.await;
}

/// Fails when `replies` in the proxy counts each time it reads.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_counts_what_a_query_costs() {
    let proxy = Proxy::start(shared().await.address()).await;
    let mut connection = PgConnection::connect(&url_at(proxy.address(), "postgres")).await.unwrap();
    let add = "SELECT $1::int + 1";
    let cost = async |connection: &mut PgConnection| {
        proxy.reset_round_trips();
        let sum: i32 = sqlx::query_scalar(add).bind(1).fetch_one(connection).await.unwrap();
        assert_eq!(sum, 2);
        proxy.reset_round_trips()
    };
    // It is prepared, and then there.
    assert_eq!(cost(&mut connection).await, 2);
    for _ in 0..20 {
        assert_eq!(cost(&mut connection).await, 1);
    }
    sqlx::raw_sql("BEGIN; SELECT repeat('large', 1000000); COMMIT").execute(&mut connection).await.unwrap();
    assert_eq!(proxy.reset_round_trips(), 1);
    sqlx::raw_sql("SELECT pg_sleep(0.05)").execute(&mut connection).await.unwrap();
    assert_eq!(proxy.reset_round_trips(), 1);
}

/// Fails when `replies` in the proxy does not return after what it drops.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_loses_the_reply_to_a_commit_that_happened() {
    let postgres = PostgresServer::start().await;
    postgres.execute("CREATE TABLE kept (k int)").await;
    let proxy = Proxy::start(postgres.address()).await;
    let mut connection = PgConnection::connect(&url_at(proxy.address(), "postgres")).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("INSERT INTO kept VALUES (1)").execute(&mut *transaction).await.unwrap();
    let lost = proxy.drop_reply(Request::With("COMMIT"));
    assert!(transaction.commit().await.is_err());
    lost.struck().await;
    assert_eq!(postgres.fetch::<i64>("SELECT count(*) FROM kept").await, 1);
}

/// Fails when `run_by` in the proxy looks for what is prepared, or forgets it.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_loses_the_reply_to_a_statement_that_was_prepared_before() {
    let postgres = PostgresServer::start().await;
    postgres.execute("CREATE TABLE kept (k int)").await;
    let proxy = Proxy::start(postgres.address()).await;
    for times in 1..=2 {
        let mut connection = PgConnection::connect(&url_at(proxy.address(), "postgres")).await.unwrap();
        let insert = || sqlx::query("INSERT INTO kept VALUES ($1)").bind(1);
        if times == 2 {
            sqlx::query("SELECT 1").execute(&mut connection).await.unwrap();
            insert().execute(&mut connection).await.unwrap();
        }
        let lost = proxy.drop_reply(Request::Runs("INTO kept"));
        assert!(insert().execute(&mut connection).await.is_err());
        lost.struck().await;
    }
    assert_eq!(postgres.fetch::<i64>("SELECT count(*) FROM kept").await, 3);
}

/// Fails when `configuration` leaves out the upstream's port, which then is 5432.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_stands_between_the_bouncer_and_its_server() {
    let proxy = Proxy::start(shared().await.address()).await;
    let bouncer = PgBouncer::start_with(proxy.address(), &[("default_pool_size", "1")]).await;
    let mut connection = PgConnection::connect_with(&bouncer.options("postgres")).await.unwrap();
    backend(&mut connection).await;
    proxy.reset_round_trips();
    backend(&mut connection).await;
    assert_eq!(proxy.round_trips(), 1);
}

/// The compiler tests it. Fails when what starts a server holds over an await what may not be sent.
#[test]
fn servers_may_be_in_a_static_and_each_task_may_wait_for_them() {
    fn is_static<T: Send + Sync + 'static>() {}
    fn is_sent<T: Send>(_: T) {}

    is_static::<(PostgresServer, PgBouncer)>();
    let _compiled = |server: &'static PostgresServer, bouncer: &'static PgBouncer| {
        is_sent((PostgresServer::start(), server.restart(), server.stop(), server.create_database("k")));
        is_sent((server.connect(), server.execute(""), server.fetch::<i32>(""), server.terminate_backends()));
        is_sent((PgBouncer::start(server), bouncer.restart()));
    };
}

/// Whose backend answers a connection.
async fn backend(connection: &mut PgConnection) -> i32 {
    // Without parameters, so that it is one transaction.
    let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap();
    row.get(0)
}

/// Those of the processes that are there. One that has ended, and that the machine's first process has yet to wait for, is
/// not.
fn there(processes: &[Pid]) -> Vec<Pid> {
    let is_there = |process: &&Pid| {
        std::fs::read_to_string(format!("/proc/{process}/stat"))
            .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
    };
    processes.iter().filter(is_there).copied().collect()
}
