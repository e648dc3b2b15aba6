//! The TLS server that nobody trusts: who does not trust it says so in the handshake and sends nothing.

use std::io;
use std::sync::Arc;

use idempotency_tests::untrusted::Untrusted;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::request::PATIENCE;

/// A TLS connection of a client that trusts these.
async fn connect(server: &Untrusted, trusted: RootCertStore) -> io::Result<TlsStream<TcpStream>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
}

/// Fails when the handshake is counted when it has succeeded, and when a connection without one counts.
#[tokio::test]
async fn a_client_that_trusts_nobody_begins_a_handshake_and_sends_nothing() {
    let server = Untrusted::start().await;
    drop(TcpStream::connect(server.address()).await.unwrap());
    assert_eq!(server.handshakes(), 0);
    let refused = connect(&server, RootCertStore::empty()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    assert_eq!((server.handshakes(), server.requests()), (1, 0));
}

/// Fails when requests are not counted.
#[tokio::test]
async fn a_request_of_a_client_that_trusts_it_counts() {
    let server = Untrusted::start().await;
    let mut trusted = RootCertStore::empty();
    trusted.add(server.certificate().clone()).unwrap();
    let mut stream = connect(&server, trusted).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!((server.handshakes(), server.requests()), (1, 1));
}
