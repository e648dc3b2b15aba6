//! A Postgres store that is set up wrongly says so and what to do, and never with whom it was to connect; one whose server is
//! not there is unavailable.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use idempotency_layer::store::{Claim, ClaimRequest, Page};
use idempotency_layer::{PostgresStore, Store, StoreError, StoreErrorKind, TransactionalStore};
use idempotency_tests::port;
use idempotency_tests::postgres::{PgBouncer, PostgresServer, shared, url_at};

use super::records::{answer, request};

/// Fails when `of_statement` does not know `INVALID_PASSWORD` or `INVALID_CATALOG_NAME`, also as PgBouncer says them; and when an
/// error of `parse` has the driver's as its source.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_a_wrong_database_and_no_url_are_told_without_the_password() {
    let server = shared().await;
    let bouncer = PgBouncer::start(server).await;
    for (at, how) in [(server.address(), How::Straight), (bouncer.address(), How::Pooled)] {
        let right = url_at(at, "postgres");
        let wrong = right.replace(PASSWORD, "wrong-and-secret");
        let refused = how.connect(&wrong).await.unwrap_err();
        misconfigured(&refused, &["password authentication failed"], &[&wrong, "wrong-and-secret"]);
        let wrong = url_at(at, "nowhere");
        let refused = how.connect(&wrong).await.unwrap_err();
        misconfigured(&refused, &["database \"nowhere\" does not exist"], &[&wrong]);
        let wrong = right.replace("postgres://postgres:", "postgres://nobody:");
        let refused = how.connect(&wrong).await.unwrap_err();
        misconfigured(&refused, &["authentication failed"], &[&wrong]);
        for none in [
            format!("mysql://u:{PASSWORD}@h/d"),
            format!("u:{PASSWORD}@h"),
            format!("postgres://u:{PASSWORD}@h:port/d"),
        ] {
            let refused = how.connect(&none).await.unwrap_err();
            misconfigured(&refused, &["postgres://user:password@host:5432/database"], &[&none]);
        }
    }
}

/// Fails when `of_statement` does not know `UNDEFINED_TABLE`.
#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_are_told_by_each_verb_and_how_to_make_them() {
    let server = shared().await;
    let url = server.create_database("no_tables").await;
    let bouncer = PgBouncer::start(server).await;
    let pooled = bouncer.url("no_tables");
    for (url, how) in [(&url, How::Straight), (&pooled, How::Pooled)] {
        let store = how.connect(url).await.unwrap();
        for store in [store.clone(), store.schema("nowhere")] {
            let request = request("k");
            let lease = &request.lease;
            let errors = [
                store.claim(&request).await.unwrap_err(),
                store.renew(lease).await.unwrap_err(),
                store.complete(lease, &answer("paid")).await.unwrap_err(),
                store.forget(lease).await.unwrap_err(),
                store.held(&Page::first(10.try_into().unwrap())).await.unwrap_err(),
                store.look(&lease.record).await.unwrap_err(),
                store.begin(lease).await.unwrap_err(),
                store.confirm(lease).await.unwrap_err(),
                store.sweep().await.unwrap_err(),
            ];
            for error in errors {
                misconfigured(&error, &["call `PostgresStore::migrate` once"], &[url]);
            }
        }
    }
}

/// Refused at once as Debian configures it; and where it takes all parameters, with the second store's first statement, which
/// is the first one's. Fails when `is_unknown_parameter` or `DUPLICATE_STATEMENT` is not known.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_pooler_is_told_with_what_to_connect_to_it() {
    let server = shared().await;
    let migrated = server.create_database("old_pooler").await;
    PostgresStore::connect(&migrated).await.unwrap().migrate().await.unwrap();

    let bouncer = PgBouncer::start(server).await;
    let url = bouncer.url("old_pooler");
    let refused = PostgresStore::connect(&url).await.unwrap_err();
    misconfigured(&refused, &["use `PostgresStore::legacy_pooler`"], &[&url]);

    let settings = [("default_pool_size", "1"), ("ignore_startup_parameters", "extra_float_digits, options")];
    let bouncer = PgBouncer::start_with(server.address(), &settings).await;
    let url = bouncer.url("old_pooler");
    let stores = [PostgresStore::connect(&url).await.unwrap(), PostgresStore::connect(&url).await.unwrap()];
    assert!(matches!(stores[0].claim(&request("k")).await.unwrap(), Claim::Acquired(_)));
    let refused = stores[1].claim(&request("k")).await.unwrap_err();
    misconfigured(&refused, &["use `PostgresStore::legacy_pooler`"], &[&url]);
}

/// Set to read only, and a standby. Fails when `of_statement` does not know `READ_ONLY`.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_is_told() {
    let server = PostgresServer::start().await;
    let url = server.url();
    let empty = server.create_database("nothing_yet").await;
    PostgresStore::connect(&url).await.unwrap().migrate().await.unwrap();

    server.execute("ALTER ROLE postgres SET default_transaction_read_only = on").await;
    takes_no_writes(&url, &empty).await;
    server.execute("BEGIN READ WRITE; ALTER ROLE postgres RESET ALL; COMMIT").await;

    server.stop().await;
    std::fs::write(server.folder().join("data/standby.signal"), "").unwrap();
    server.restart().await;
    takes_no_writes(&url, &empty).await;
}

async fn takes_no_writes(migrated: &str, empty: &str) {
    for url in [migrated, empty] {
        let refused = PostgresStore::connect(url).await.unwrap().migrate().await.unwrap_err();
        misconfigured(&refused, &["a standby, or set to read only"], &[url]);
    }
    let refused = PostgresStore::connect(migrated).await.unwrap().claim(&request("k")).await.unwrap_err();
    misconfigured(&refused, &["a standby, or set to read only"], &[migrated]);
}

/// Fails when `of_statement` takes what it does not know for `Misconfigured`.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_unavailable() {
    let nobody = url_at(port::local(port::free()), "postgres");
    for how in [How::Straight, How::Pooled] {
        unavailable(&how.connect(&nobody).await.unwrap_err(), &nobody);
    }

    let server = PostgresServer::start().await;
    let store = PostgresStore::connect(&server.url()).await.unwrap().timeout(Duration::from_millis(300));
    store.migrate().await.unwrap();
    let request = request("k");
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
    server.pause();
    no_verb_is_available(&store, &request, &server.url()).await;
    server.resume();
    server.kill();
    no_verb_is_available(&store, &request, &server.url()).await;
    unavailable(&store.migrate().await.unwrap_err(), &server.url());
    server.restart().await;
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
}

async fn no_verb_is_available(store: &PostgresStore, request: &ClaimRequest, url: &str) {
    unavailable(&store.claim(request).await.unwrap_err(), url);
    unavailable(&store.begin(&request.lease).await.unwrap_err(), url);
    unavailable(&store.confirm(&request.lease).await.unwrap_err(), url);
}

#[derive(Clone, Copy)]
enum How {
    Straight,
    Pooled,
}

impl How {
    async fn connect(self, url: &str) -> Result<PostgresStore, StoreError> {
        match self {
            Self::Straight => PostgresStore::connect(url).await,
            Self::Pooled => PostgresStore::legacy_pooler(url).await,
        }
    }
}

/// The error is about how things are set up, says all of these, and tells no secret.
pub(super) fn misconfigured(error: &StoreError, says: &[&str], secrets: &[&str]) {
    let told = told(error, secrets);
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured, "{told}");
    for text in says {
        assert!(told.contains(text), "{told}");
    }
}

fn unavailable(error: &StoreError, url: &str) {
    let told = told(error, &[url]);
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{told}");
}

/// What a log shows of it.
fn told(error: &StoreError, secrets: &[&str]) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(told, ": {error}").unwrap();
        cause = error.source();
    }
    for text in [&told, &format!("{error:?}")] {
        for secret in [secrets, &[PASSWORD]].concat() {
            assert!(!text.contains(secret), "{text}");
        }
    }
    told
}

/// That of the servers of the tests.
const PASSWORD: &str = "not-to-be-told";
