//! One connection through the proxy: requests one way, replies the other, and what happens to them.

use std::future::pending;
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
    let parting = tokio::select! {
        parting = line.requests(from_client, to_server) => parting,
        parting = line.replies(from_server, to_client) => parting,
    };
    match parting {
        Parting::Close => {}
        Parting::Reset => client.set_zero_linger().expect("a socket"),
    }
}

/// How the connection to the client ends.
enum Parting {
    Close,
    Reset,
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
    /// Ends only where a fault ends the connection: otherwise the server does, once it has replied to the last request.
    async fn requests(&self, mut client: ReadHalf<'_>, mut server: WriteHalf<'_>) -> Parting {
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
                match &armed.kind {
                    Kind::Hold { released, .. } => {
                        armed.struck.happen();
                        released.wait().await;
                    }
                    Kind::Refuse => {
                        armed.struck.happen();
                        return Parting::Reset;
                    }
                    _ => {}
                }
                *self.fate() = Some(armed);
            }
            self.is_asked.store(true, Ordering::SeqCst);
            if server.write_all(request).await.is_err() {
                break;
            }
        }
        // Fails where the server has closed, and then there is nobody to tell.
        drop(server.shutdown().await);
        pending().await
    }

    async fn replies(&self, mut server: ReadHalf<'_>, mut client: WriteHalf<'_>) -> Parting {
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
                            return Parting::Close;
                        }
                        Kind::Reset => {
                            struck.happen();
                            return Parting::Reset;
                        }
                        Kind::Halve => {
                            // A client that has gone gets none of it.
                            drop(client.write_all(&bytes[..count / 2]).await);
                            struck.happen();
                            return Parting::Close;
                        }
                        Kind::Silence => {
                            self.is_silent.store(true, Ordering::SeqCst);
                            struck.happen();
                        }
                        Kind::Hold { answered, .. } => answered.happen(),
                        // Its request has not come so far.
                        Kind::Refuse => {}
                    }
                }
            }
            if !self.is_silent.load(Ordering::SeqCst) {
                // The client of a request that was held may have gone. The server is heard to its end all the same, since
                // closing on it could reset what it has not read.
                drop(client.write_all(&bytes[..count]).await);
            }
        }
        Parting::Close
    }

    fn fate(&self) -> MutexGuard<'_, Option<Armed>> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So much is read at once.
const AT_ONCE: usize = 64 * 1024;
