//! The payment provider that tests stand on: that it honours keys, and that each of its faults is on the wire what it says.

mod http1;
mod http2;
mod keys;
mod lines;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use http_body_util::Full;
use idempotency_tests::provider::Provider;
use idempotency_tests::wire::{Connection, Version, Whole};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::request::PATIENCE;

const PAYLOAD: &str = r#"{"amount":1050,"currency":"EUR"}"#;

/// A charge under a key.
fn charge(key: &str) -> Request<Full<Bytes>> {
    Request::post("http://provider/charges").header("idempotency-key", key).body(PAYLOAD.into()).unwrap()
}

/// Sends a charge on a connection of its own.
async fn pay(provider: &Provider, version: Version, key: &str) -> hyper::Result<http::Response<Whole>> {
    Connection::dial(provider.address(), version).await.fetch(charge(key)).await
}

/// The status of each request that was received.
fn statuses(provider: &Provider) -> Vec<Option<u16>> {
    provider.received().iter().map(|received| received.status.map(|status| status.as_u16())).collect()
}

/// A charge on a bare HTTP/1.1 connection.
struct Bare(TcpStream);

impl Bare {
    async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends a charge and reads what comes until the connection ends, and how it does.
    async fn pay(provider: &Provider, key: &str) -> (String, Result<(), ErrorKind>) {
        let mut bare = Self::connect(provider.address()).await;
        match bare.send(key).await {
            Ok(()) => bare.hear().await,
            // One that is reset before it was heard may notice here, and would not again.
            Err(error) => (String::new(), Err(error.kind())),
        }
    }

    async fn send(&mut self, key: &str) -> std::io::Result<()> {
        let length = PAYLOAD.len();
        let head = format!("POST /charges HTTP/1.1\r\nhost: provider\r\nidempotency-key: {key}\r\n");
        let request = format!("{head}content-length: {length}\r\n\r\n{PAYLOAD}");
        self.0.write_all(request.as_bytes()).await
    }

    async fn hear(&mut self) -> (String, Result<(), ErrorKind>) {
        let mut heard = Vec::new();
        let ended = timeout(PATIENCE, self.0.read_to_end(&mut heard)).await.expect("a connection left open");
        (String::from_utf8(heard).unwrap(), ended.map(drop).map_err(|error| error.kind()))
    }

    /// Reads up to and with this text, and no further than what came with it.
    async fn hear_until(&mut self, end: &str) -> String {
        let mut heard = Vec::new();
        let until = async {
            while !String::from_utf8_lossy(&heard).contains(end) {
                assert_ne!(self.0.read_buf(&mut heard).await.unwrap(), 0, "it ended");
            }
        };
        timeout(PATIENCE, until).await.expect("a provider that says it");
        String::from_utf8(heard).unwrap()
    }

    /// Whether nothing comes for a while, not even an end.
    async fn is_silent(&mut self) -> bool {
        timeout(A_WHILE, self.0.read_u8()).await.is_err()
    }
}

/// An HTTP/2 connection whose frames are seen.
struct Framed {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Framed {
    async fn connect(provider: &Provider) -> Self {
        let stream = TcpStream::connect(provider.address()).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        Self { sender, connection: tokio::spawn(connection) }
    }

    /// Sends a charge.
    async fn send(&mut self, key: &str) -> ResponseFuture {
        self.try_send(key).await.unwrap()
    }

    async fn try_send(&mut self, key: &str) -> Result<ResponseFuture, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(charge(key).map(drop), false)?;
        body.send_data(PAYLOAD.into(), true)?;
        Ok(response)
    }

    /// Sends a charge and says why there is no response.
    async fn fail(&mut self, key: &str) -> h2::Error {
        let response = self.send(key).await;
        timeout(PATIENCE, response).await.expect("a failure").unwrap_err()
    }

    /// Sends a charge, and gives how much of its body came and why no more.
    async fn break_off(&mut self, key: &str) -> (usize, h2::Error) {
        let response = self.send(key).await;
        let response = timeout(PATIENCE, response).await.expect("a head").unwrap();
        let declared: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let (mut body, mut came) = (response.into_body(), 0);
        loop {
            match timeout(PATIENCE, body.data()).await.expect("an end").expect("no end of the stream") {
                Ok(data) => came += data.len(),
                Err(error) => {
                    assert!(came < declared);
                    return (came, error);
                }
            }
        }
    }

    /// How a connection failed on which a charge was sent.
    async fn reset(provider: &Provider) -> ErrorKind {
        let stream = TcpStream::connect(provider.address()).await.unwrap();
        let failed = async {
            let (sender, connection) = h2::client::handshake(stream).await?;
            let mut client = Self { sender, connection: tokio::spawn(connection) };
            if let Ok(response) = client.try_send("a").await {
                response.await.unwrap_err();
            }
            client.ended().await
        };
        let failed = timeout(PATIENCE, failed).await.expect("a failure").unwrap_err();
        failed.get_io().unwrap_or_else(|| panic!("{failed:?}")).kind()
    }

    /// How the connection ended.
    async fn ended(self) -> Result<(), h2::Error> {
        drop(self.sender);
        timeout(PATIENCE, self.connection).await.expect("a connection left open").unwrap()
    }
}

/// Long enough to see that nothing happens.
const A_WHILE: Duration = Duration::from_millis(50);
