//! What must be survived, each situation a test named after its result.
#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod city;
mod configuration;
mod crash;
mod identity;
mod ledger;
mod queue;
mod replies;
mod request;
mod transaction;
mod transfers;
