//! One connection through the proxy: requests one way, replies the other, and what happens to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::Network;
use super::fault::{Armed, Kind};
use super::statements::Statements;

/// Carries bytes until the server closes, or the fault does. A client that closes has sent its last request; the server
/// still gets it.
pub(super) async fn carry(mut client: TcpStream, mut server: TcpStream, network: &Network) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("a socket");
    }
    let line =
        Line { network, is_asked: AtomicBool::new(false), is_silent: AtomicBool::new(false), fate: Mutex::default() };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let requests = async {
        line.requests(from_client, to_server).await;
        std::future::pending().await
    };
    tokio::select! {
        () = requests => {}
        () = line.replies(from_server, to_client) => {}
    }
}

struct Line<'a> {
    network: &'a Network,
    /// Whether a request was sent on since the last reply.
    is_asked: AtomicBool,
    /// Whether nothing passes any more.
    is_silent: AtomicBool,
    /// What happens to the next reply.
    fate: Mutex<Option<Armed>>,
}

impl Line<'_> {
    async fn requests(&self, mut client: ReadHalf<'_>, mut server: WriteHalf<'_>) {
        let mut bytes = vec![0; AT_ONCE];
        let mut statements = Statements::default();
        // A connection that a client resets ends as one that it closes.
        while let Ok(count @ 1..) = client.read(&mut bytes).await {
            self.network.passable().await;
            if self.is_silent.load(Ordering::SeqCst) {
                continue;
            }
            let request = &bytes[..count];
            let runs = statements.run_by(request);
            if let Some(armed) = self.network.strike(request, &runs) {
                if let Kind::Hold { released, .. } = &armed.kind {
                    armed.struck.happen();
                    released.wait().await;
                }
                *self.fate() = Some(armed);
            }
            self.is_asked.store(true, Ordering::SeqCst);
            if server.write_all(request).await.is_err() {
                return;
            }
        }
        // Fails where the server has closed, and then there is nobody to tell.
        drop(server.shutdown().await);
    }

    async fn replies(&self, mut server: ReadHalf<'_>, mut client: WriteHalf<'_>) {
        let mut bytes = vec![0; AT_ONCE];
        while let Ok(count @ 1..) = server.read(&mut bytes).await {
            self.network.passable().await;
            let begins = self.is_asked.swap(false, Ordering::SeqCst);
            if begins {
                self.network.round_trips.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(self.network.delay()).await;
                let fate = self.fate().take();
                if let Some(Armed { kind, struck, .. }) = fate {
                    match kind {
                        Kind::Drop => {
                            struck.happen();
                            return;
                        }
                        Kind::Silence => {
                            self.is_silent.store(true, Ordering::SeqCst);
                            struck.happen();
                        }
                        Kind::Hold { answered, .. } => answered.happen(),
                    }
                }
            }
            if !self.is_silent.load(Ordering::SeqCst) {
                // The client of a request that was held may have gone. The server is heard to its end all the same, since
                // closing on it could reset what it has not read.
                drop(client.write_all(&bytes[..count]).await);
            }
        }
    }

    fn fate(&self) -> MutexGuard<'_, Option<Armed>> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So much is read at once.
const AT_ONCE: usize = 64 * 1024;
