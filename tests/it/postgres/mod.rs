//! The Postgres store on real servers, straight and behind PgBouncer.

mod conformance;
mod model;
mod plans;
mod round_trips;
