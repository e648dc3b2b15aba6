//! A service on a real socket, over HTTP/1.1 and HTTP/2, and clients that misbehave on one.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// A version of HTTP to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

impl Version {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Http1, Self::Http2];
}

/// Serves a router on a free port until it is dropped.
#[derive(Debug)]
pub struct Served {
    /// Where.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Served {
    /// Serves both versions of HTTP.
    pub async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { address, task }
    }

    /// A bare connection.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// A connection that speaks HTTP.
    pub async fn dial(&self, version: Version) -> Connection {
        Connection::dial(self.address, version).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One connection; dropped, it is closed.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    task: AbortHandle,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// A connection to any server.
    pub async fn dial(address: SocketAddr, version: Version) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.expect("a connection"));
        match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(io).await.expect("a handshake");
                let task = tokio::spawn(connection.with_upgrades()).abort_handle();
                Self { sender: Sender::Http1(sender), task }
            }
            Version::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a handshake");
                let task = tokio::spawn(connection).abort_handle();
                Self { sender: Sender::Http2(sender), task }
            }
        }
    }

    /// Sends one request, and waits no longer for its response than any run here lasts. Dropped before its end, over
    /// HTTP/2 the stream is reset, over HTTP/1.1 nothing happens until the connection is dropped.
    ///
    /// # Errors
    ///
    /// When there is no response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let responded = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        timeout(PATIENCE, responded).await.expect("a request without a response")
    }

    /// Sends one request and reads the response whole.
    ///
    /// # Errors
    ///
    /// When there is no whole response.
    pub async fn fetch(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Whole>> {
        let (parts, body) = self.send(request).await?.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.expect("a response without an end")?;
        let trailers = body.trailers().cloned();
        Ok(Response::from_parts(parts, Whole { data: body.to_bytes(), trailers }))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body that was read to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// The data.
    pub data: Bytes,
    /// The trailers.
    pub trailers: Option<http::HeaderMap>,
}

/// What the server says on a bare connection until it closes it. A reset after the answer takes
/// nothing of it back.
pub async fn read_to_end(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // Whatever came before an error is there.
    let _closed_or_reset = timeout(PATIENCE, socket.read_to_end(&mut said)).await.expect("a connection left open");
    String::from_utf8(said).expect("text")
}

const PATIENCE: Duration = Duration::from_secs(20);
