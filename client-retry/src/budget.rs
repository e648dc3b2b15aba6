//! A server that is down is not brought down further by those who wait for it: retries to an origin
//! are paid from a [`RetryBudget`] that its successes fund.
//!
//! - A balance begins full. Each success adds to it, each retry takes from it, and time adds a trickle,
//!   so that an origin without any success is still tried now and then.
//! - A retry that the balance does not cover is not sent, and its call ends with the outcome at hand.
//!   Nobody waits for a balance to rise.
//! - A retry is paid before its wait, so that of many callers only those wait whom the balance covers. A
//!   caller that goes away while it waits gets its retry paid back.
//! - What a balance lacks is kept for at most [`MAX_ORIGINS`] origins at once. A full balance needs no
//!   keeping. Where no more can be kept, there are no retries to another origin.
//!
//! An origin is scheme, host and port (RFC 6454, section 4). It is the one that was asked, wherever
//! redirects led.

mod balance;
mod ledger;

pub use self::balance::RetryBudget;
pub(crate) use self::ledger::{Ledger, Withdrawal};

#[cfg(doc)]
use self::ledger::MAX_ORIGINS;
