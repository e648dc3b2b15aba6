//! Peers over real sockets that fail in exactly one way, for the tests of what reqwest makes of it.

use std::io::{self, ErrorKind};

use ::reqwest::dns::{Name, Resolve, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Resolves no name: it fails like this, or hangs.
pub(super) struct Names(pub(super) Option<ErrorKind>);

impl Resolve for Names {
    fn resolve(&self, _: Name) -> Resolving {
        let answer = self.0;
        Box::pin(async move {
            match answer {
                Some(kind) => Err(io::Error::from(kind).into()),
                None => std::future::pending().await,
            }
        })
    }
}

/// A server that accepts one connection.
pub(super) async fn server<F>(serve: impl FnOnce(TcpStream) -> F + Send + 'static) -> (String, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        drop(listener);
        serve(socket).await;
    });
    (url, task)
}

/// A URL that nobody listens at.
pub(super) async fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

pub(super) async fn read_head(socket: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"{}") {
        assert_ne!(socket.read_buf(&mut read).await.unwrap(), 0);
    }
}

/// Speaks HTTP/2 by hand: reads frames until the headers of a request, writes `frames`, and closes.
pub(super) async fn answer_with_frames(mut socket: TcpStream, frames: Vec<u8>) {
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await.unwrap();
    socket.write_all(SETTINGS).await.unwrap();
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, ..] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        socket.read_exact(&mut payload).await.unwrap();
        if kind == HEADERS {
            break;
        }
    }
    socket.write_all(&frames).await.unwrap();
    // Until the client has read all of it, a close would be a reset.
    socket.shutdown().await.unwrap();
    while socket.read_u8().await.is_ok() {}
}

const HEADERS: u8 = 1;

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// `:status: 200` and `content-length: 9`, with the body to follow.
pub(super) const OK: &[u8] = &[0, 0, 5, 1, 4, 0, 0, 0, 1, 0x88, 0x0f, 0x0d, 1, b'9'];

pub(super) fn reset(reason: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, reason]
}

pub(super) fn go_away(last_stream: u8, reason: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_stream, 0, 0, 0, reason]
}

pub(super) const NO_ERROR: u8 = 0;
pub(super) const INTERNAL_ERROR: u8 = 2;
pub(super) const REFUSED_STREAM: u8 = 7;
pub(super) const CANCEL: u8 = 8;
