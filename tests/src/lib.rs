//! What the tests of the suite stand on: servers of their own as child processes, stores with faults, a bank to rob.
//!
//! - [`server`]: a child process that is started, killed, paused and resumed, and never outlives its test.
//! - [`keeper`]: a server program that others wrote, gone with its handle or its test's process, however that ends.
//! - [`port`]: ports that stay a server's own while it is away.
//! - [`redis`]: Redis servers of a test's own.
//! - [`postgres`]: PostgreSQL servers of a test's own, and PgBouncer in front of one.
//! - [`proxy`]: a proxy that counts round trips and loses replies, whatever the protocol.
//! - [`provider`]: a payment provider that keeps a ledger, honours keys, and fails in every way.
//! - [`untrusted`]: a TLS server whose certificate nobody trusts.
//! - [`client`]: keyed requests over a socket, and one that goes on until it has its answer.
//! - [`hooked`]: a store that hangs, fails, loses replies or sends verbs twice, at a named point.
//! - [`failpoint`]: where on its way a request stops, to be killed there.
//! - [`gate`]: a handler that says when it is entered, and leaves when the test lets it.
//! - [`stores`]: every store, and the embedded ones on a clock that the test moves.
//! - [`wire`]: a service on a real socket, and clients that misbehave on it.
//! - [`bank`]: accounts and transfers in one SQLite file or PostgreSQL database, whose sum never changes.
//! - [`shop`]: orders that a provider charges, in the middle of a chain.
//!
//! Nothing here depends on a server that happens to run.

pub mod bank;
pub mod client;
mod door;
pub mod failpoint;
pub mod gate;
pub mod hooked;
pub mod keeper;
mod patience;
pub mod port;
pub mod postgres;
pub mod provider;
pub mod proxy;
pub mod redis;
pub mod server;
pub mod shop;
pub mod stores;
pub mod untrusted;
pub mod wire;

/// The README's program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
