//! What must be survived, each situation a test named after its result.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod city;
mod configuration;
mod crash;
mod given_up;
mod identity;
mod ledger;
mod outage;
mod payments;
mod queue;
mod replies;
mod request;
mod rows;
mod runtimes;
mod silence;
mod sockets;
mod stack;
mod streams;
mod transaction;
mod transfers;
