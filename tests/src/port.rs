//! Ports of 127.0.0.1 that stay a server's own while it is away: killed or cut off, it comes back to the same one.
//!
//! They lie below those that the kernel gives to outgoing connections, any of which could settle on a port whose server is
//! away. Within a process none is given twice. Another process may take one at any time before it is bound, so whoever
//! binds it must be ready to be refused and to ask for the next.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that was free a moment ago.
///
/// # Panics
///
/// When all of them are taken.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run side by side begin far from each other.
    let first = std::process::id().wrapping_mul(STRIDE);
    for _ in 0..COUNT {
        let offset = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = FIRST + u16::try_from(offset).expect("an offset below COUNT");
        if TcpListener::bind(local(port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// The port on this machine.
#[must_use]
pub fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Linux gives outgoing connections the ports from 32768 on.
const FIRST: u16 = 10_000;
const COUNT: u32 = 20_000;
const STRIDE: u32 = 211;
