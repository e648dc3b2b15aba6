//! The Redis store on real servers: the whole conformance list, the model, what each request costs in round trips, and what
//! only a server can do to it.

mod behind;
mod chain;
mod cluster;
mod commands;
mod conformance;
mod crash;
mod damage;
mod failover;
mod keys;
mod list;
mod model;
mod moving;
mod outages;
mod overtaken;
mod plain;
mod replies;
mod restarts;
mod rivals;
mod round_trips;
mod sentinel;
mod setup;
