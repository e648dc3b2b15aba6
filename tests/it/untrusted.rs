//! The TLS server that nobody trusts: who does not trust it says so in the handshake and sends nothing.

use std::io;
use std::sync::Arc;

use idempotency_tests::untrusted::Untrusted;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Fails when the handshake is counted when it has succeeded, and when a connection without one counts.
#[tokio::test]
async fn a_client_that_trusts_nobody_begins_a_handshake_and_sends_nothing() {
    let server = Untrusted::start().await;
    drop(TcpStream::connect(server.address()).await.unwrap());
    assert_eq!(server.handshakes(), 0);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream);
    let refused = connecting.await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    assert_eq!((server.handshakes(), server.requests()), (1, 0));
}
