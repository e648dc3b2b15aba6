//! The Postgres store on real servers, straight and behind PgBouncer.

mod behind;
mod conformance;
mod demoted;
mod model;
mod outages;
mod plans;
mod round_trips;
