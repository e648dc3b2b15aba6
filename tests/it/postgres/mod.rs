//! The Postgres store on real servers, straight and behind PgBouncer.

mod conformance;
mod demoted;
mod model;
mod plans;
mod round_trips;
