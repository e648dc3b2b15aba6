//! A connection that two hold: whoever speaks HTTP on it, and whoever decides how it ends.
//!
//! Once the first has gone, the second ends it:
//!
//! - [`reset`](Line::reset): RST. The client's next read or write fails, and what it has not read is lost.
//! - [`close`](Line::close): FIN. To close a socket with unread bytes would reset it, so these are read to their end first.
//! - [`stall`](Line::stall): nothing, for as long as the client stays.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One connection; the socket is closed with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<TcpStream>);

impl Line {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Resets the connection, once the other clones are gone.
    pub(super) fn reset(self) {
        self.0.set_zero_linger().expect("a socket");
    }

    /// Closes it behind what was written, and waits until the client has done so too.
    pub(super) async fn close(self) {
        // Fails where the client has reset it, and then it is closed.
        drop(self.shut());
        self.stall().await;
    }

    /// Keeps it open until the client closes it.
    pub(super) async fn stall(self) {
        let mut unheard = vec![0; 16 * 1024];
        while self.0.readable().await.is_ok() {
            match self.0.try_read(&mut unheard) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    fn shut(&self) -> io::Result<()> {
        SockRef::from(&*self.0).shutdown(Shutdown::Write)
    }
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shut())
    }
}
