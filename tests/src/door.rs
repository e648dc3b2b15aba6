//! A port of 127.0.0.1 whose owner can shut it, so that connecting is refused, and open it again at the same address.
//!
//! 1. What is accepted is served in a task of its own, which ends with the door: shut or dropped, it closes all connections.
//! 2. Once [`shut`](Door::shut) returns, nobody is connected and nobody gets in.
//! 3. The port is its own while it is shut, as far as [`port`] can see to that.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::patience::Patience;
use crate::port;

/// Where connections come in. It lives in the runtime that opened it.
pub(crate) struct Door {
    address: SocketAddr,
    serve: Arc<Serve>,
    listening: Mutex<Option<Listening>>,
}

/// What becomes of a connection.
type Serve = dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

struct Listening {
    /// Dropped, it ends the task, which closes all connections.
    shut: oneshot::Sender<Infallible>,
    task: JoinHandle<()>,
}

impl Door {
    /// Opens one on a port that nobody has.
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = loop {
            // Another process may have taken it in the meantime.
            if let Ok(listener) = TcpListener::bind(port::local(port::free())).await {
                break listener;
            }
        };
        let address = listener.local_addr().expect("an address");
        let door =
            Self { address, serve: Arc::new(move |stream| Box::pin(serve(stream))), listening: Mutex::new(None) };
        door.listen(listener);
        door
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and refuses new ones, which is so when this returns.
    pub(crate) async fn shut(&self) {
        let listening = self.listening().take();
        if let Some(Listening { shut, task }) = listening {
            drop(shut);
            task.await.expect("connections that do not panic");
        }
    }

    /// Lets connections in again, unless it does.
    pub(crate) async fn open(&self) {
        if self.listening().is_none() {
            self.listen(self.bind().await);
        }
    }

    /// Takes its port again. A process that this one starts has a copy of each socket until its program begins, and with the
    /// listener's the port stays taken for so long.
    async fn bind(&self) -> TcpListener {
        let patience = Patience::new();
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => return listener,
                Err(error) => assert!(patience.lasts().await, "its own port: {error}"),
            }
        }
    }

    fn listen(&self, listener: TcpListener) {
        let (shut, is_shut) = oneshot::channel();
        let task = tokio::spawn(listen(listener, Arc::clone(&self.serve), is_shut));
        *self.listening() = Some(Listening { shut, task });
    }

    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Accepts until it is shut, which closes its connections.
async fn listen(listener: TcpListener, serve: Arc<Serve>, mut shut: oneshot::Receiver<Infallible>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut shut => break,
            accepted = listener.accept() => {
                // One that was reset before it was accepted is none.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream));
                }
            }
            Some(ended) = connections.join_next() => ended.expect("a connection that does not panic"),
        }
    }
    drop(listener);
    connections.shutdown().await;
}
