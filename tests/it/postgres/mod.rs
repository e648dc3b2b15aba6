//! The Postgres store on real servers, straight and behind PgBouncer.

mod behind;
mod city;
mod clock;
mod commits;
mod conformance;
mod crash;
mod damage;
mod demoted;
mod endings;
mod isolation;
mod migration;
mod model;
mod outages;
mod outcomes;
mod overtaken;
mod plans;
mod pooler;
mod pools;
mod records;
mod refused;
mod replies;
mod restarts;
mod rivals;
mod round_trips;
mod transfers;
mod zombie;
