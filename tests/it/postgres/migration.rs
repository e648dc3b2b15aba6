//! The tables of the Postgres store are made once, by whomever, however many come at once, and left alone where they are of a
//! newer version.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotency_layer::store::{Begin, Claim, Commit, Write};
use idempotency_layer::{PostgresStore, Store, TransactionalStore};
use idempotency_tests::postgres::{PgBouncer, PostgresServer, shared, url_at};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::records::{answer, request};
use super::refused::misconfigured;

/// Fails when `migrate` gives up at what `is_duplicate` finds, and when `apply` runs a script that has run.
#[tokio::test(flavor = "multi_thread")]
async fn of_32_migrations_at_once_all_succeed_straight_and_behind_a_pooler() {
    let url = shared().await.create_database("migrations").await;
    let bouncer = PgBouncer::start(shared().await).await;
    let pooled = bouncer.url("migrations");
    for round in 0..6 {
        let schema = format!("Round '{round}\"");
        let barrier = Arc::new(Barrier::new(32));
        let mut migrations = JoinSet::new();
        for number in 0..32 {
            // All of them straight, all of them through the pooler, and half of them each.
            let is_pooled = round % 3 == 1 || (round % 3 == 2 && number % 2 == 0);
            let store = if is_pooled {
                PostgresStore::legacy_pooler(&pooled).await
            } else {
                PostgresStore::connect(&url).await
            };
            let (store, barrier) = (store.unwrap().schema(&schema), Arc::clone(&barrier));
            migrations.spawn(async move {
                barrier.wait().await;
                store.migrate().await.map(|()| store)
            });
        }
        while let Some(migrated) = migrations.join_next().await {
            let store = migrated.unwrap().unwrap_or_else(|error| panic!("round {round}: {error:?}"));
            works(&store).await;
        }
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let versions = format!("SELECT array_agg(version) FROM \"{}\".idempotency_schema", schema.replace('"', "\"\""));
        let versions: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(versions)).fetch_one(&mut connection).await.unwrap();
        assert_eq!(versions, [1], "round {round}");
    }
}

/// Fails when `apply` sends `CREATE SCHEMA IF NOT EXISTS` where the schema is there, which is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_create_no_schema_migrates_the_one_that_it_owns() {
    let server = PostgresServer::start().await;
    server.execute("CREATE ROLE app LOGIN PASSWORD 'own'; CREATE SCHEMA own AUTHORIZATION app").await;
    let store = PostgresStore::connect(&url_of(&server, "app", "own")).await.unwrap();
    let own = store.clone().schema("own");
    own.migrate().await.unwrap();
    own.migrate().await.unwrap();
    works(&own).await;

    // What it may not do is said.
    for schema in ["public", "none"] {
        let refused = store.clone().schema(schema).migrate().await.unwrap_err();
        misconfigured(&refused, &["permission denied for"], &[]);
    }
}

/// A service need not be who may make tables. Fails when `begin` truncates what transactions have left.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_read_and_write_rows_only_uses_tables_that_others_have_made() {
    let server = PostgresServer::start().await;
    PostgresStore::connect(&server.url()).await.unwrap().migrate().await.unwrap();
    server
        .execute(
            "CREATE ROLE app LOGIN PASSWORD 'own'; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app",
        )
        .await;
    let store = PostgresStore::connect(&url_of(&server, "app", "own")).await.unwrap();
    works(&store).await;
    store.sweep().await.unwrap();
}

/// Fails when `refuse_newer` refuses none, and when `apply` runs a script that has run.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_newer_version_are_refused_and_left_alone() {
    let url = shared().await.create_database("newer").await;
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("INSERT INTO idempotency_schema VALUES (2)").execute(&mut connection).await.unwrap();
    let before = tables(&mut connection, "public").await;
    let refused = store.migrate().await.unwrap_err();
    misconfigured(&refused, &["version 2", "knows 1", "update this process first"], &[&url]);
    assert_eq!(tables(&mut connection, "public").await, before);
}

/// Fails when `apply` makes an index that no script makes.
#[tokio::test(flavor = "multi_thread")]
async fn the_scripts_run_by_hand_make_the_tables_that_migrate_makes() {
    let url = shared().await.create_database("by_hand").await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../idempotency-layer/migrations/postgres");
    let mut scripts: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    sqlx::raw_sql("CREATE SCHEMA hand; BEGIN; SET LOCAL search_path = hand").execute(&mut connection).await.unwrap();
    for script in scripts {
        let script = std::fs::read_to_string(script).unwrap();
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut connection).await.unwrap();
    }
    sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();

    let store = PostgresStore::connect(&url).await.unwrap();
    let [hand, made] = [store.clone().schema("hand"), store.schema("made")];
    works(&hand).await;
    made.migrate().await.unwrap();
    let by_hand = tables(&mut connection, "hand").await;
    assert!(
        by_hand.len() > 40 && by_hand.iter().any(|line| line.contains("idempotency_record.body bytea")),
        "{by_hand:#?}"
    );
    assert_eq!(by_hand, tables(&mut connection, "made").await);

    // And it finds nothing left to do.
    hand.migrate().await.unwrap();
    assert_eq!(by_hand, tables(&mut connection, "hand").await);
}

/// The store claims, renews, records and replays, and commits a transaction.
async fn works(store: &PostgresStore) {
    static KEYS: AtomicU32 = AtomicU32::new(0);
    let key = || request(&format!("key {}", KEYS.fetch_add(1, Ordering::SeqCst)));
    let (one, two) = (key(), key());
    for request in [&one, &two] {
        assert!(matches!(store.claim(request).await.unwrap(), Claim::Acquired(_)));
        let _renewed = store.renew(&request.lease).await.unwrap();
    }
    assert_eq!(store.complete(&one.lease, &answer("paid")).await.unwrap(), Write::Done);
    let Begin::Begun(transaction) = store.begin(&two.lease).await.unwrap() else { panic!("fenced") };
    assert_eq!(store.complete_in(transaction, &two.lease, &answer("paid")).await.unwrap(), Commit::Committed);
    for request in [&one, &two] {
        assert!(matches!(store.claim(request).await.unwrap(), Claim::Recorded(_)));
    }
}

fn url_of(server: &PostgresServer, role: &str, password: &str) -> String {
    let url = url_at(server.address(), "postgres");
    let (_, host) = url.split_once('@').unwrap();
    format!("postgres://{role}:{password}@{host}")
}

/// All that the catalog says of a schema's tables.
async fn tables(connection: &mut PgConnection, schema: &str) -> Vec<String> {
    let lines: Vec<String> = sqlx::query_scalar(TABLES).bind(schema).fetch_all(connection).await.unwrap();
    lines.into_iter().map(|line| line.replace(&format!("{schema}."), "")).collect()
}

const TABLES: &str = "\
    WITH named AS (SELECT c.* FROM pg_class c WHERE c.relnamespace = $1::regnamespace) \
    SELECT format('%s %s %s %s', relname, relkind, relpersistence, reloptions) AS line FROM named \
    UNION ALL SELECT format('%s.%s %s %s %s', relname, attname, format_type(atttypid, atttypmod), attnotnull, \
        pg_get_expr(adbin, adrelid)) \
        FROM named c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum \
        WHERE attnum > 0 \
    UNION ALL SELECT format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint \
        WHERE connamespace = $1::regnamespace \
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1 \
    ORDER BY line";
