//! A server that took writes and does not any more, as a primary that has become a standby.

use idempotency_layer::store::Claim;
use idempotency_layer::{PostgresStore, Store, StoreErrorKind};
use idempotency_tests::postgres::PostgresServer;

use crate::counted::{again, request};

/// Sessions that began while the server took no writes would never take any. Fails when `is_of_connection` does not know
/// `READ_ONLY`.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_only_reads_is_given_up() {
    let server = PostgresServer::start().await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    server.execute("ALTER ROLE postgres SET default_transaction_read_only = on").await;

    let late = PostgresStore::connect(&server.url()).await.unwrap();
    let request = request();
    assert_eq!(late.claim(&request).await.unwrap_err().kind(), StoreErrorKind::Misconfigured);
    server.execute("BEGIN READ WRITE; ALTER ROLE postgres RESET default_transaction_read_only; COMMIT").await;
    assert!(matches!(late.claim(&request).await.unwrap(), Claim::Acquired(_)));
    assert!(matches!(store.claim(&again(&request)).await.unwrap(), Claim::InFlight { .. }));
}
