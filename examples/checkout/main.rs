//! One order is charged once although the provider's answer is lost and the service is killed: this program plays it,
//! and shows the ledger.
//!
//! ```text
//! caller ──key──► service (a process of its own, SQLite) ──derived key──► provider
//!        client-retry     idempotency-layer, client-retry                 a ledger
//! ```
//!
//! 1. The caller orders. Its client makes one key and keeps it on every attempt.
//! 2. The service runs the order once for each key. It asks the provider for a charge under a key that is derived from
//!    the caller's, so that every run of the order asks under the same one.
//! 3. The provider charges, and its answer is lost. The service's client asks again under the same key, and gets the
//!    answer of the one charge that there is.
//! 4. Somewhere on this way the service is killed (SIGKILL) and started again, with nothing but its database. The
//!    caller's client asks again, and the service takes the order up or replays its answer.
//! 5. The order and the record of the answer are one transaction.
//!
//! `--seed` picks how the answer is lost and where the service is killed. The exit status is 1 when the ledger shows
//! anything but one charge, or the caller has no answer.

mod caller;
mod narrator;
mod process;
mod provider;
mod script;
mod service;
mod timeline;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::process::Process;
use crate::provider::Provider;
use crate::script::{Kill, Script};
use crate::timeline::Timeline;

/// An order that is charged once, whatever happens on the way.
#[derive(Parser)]
struct Options {
    /// Picks how the provider's answer is lost and where the service is killed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// The service, as the play starts it.
    #[command(hide = true)]
    Service {
        #[arg(long)]
        listen: String,
        #[arg(long)]
        provider: String,
        #[arg(long)]
        database: PathBuf,
        /// Where to wait until it is killed.
        #[arg(long)]
        stop: Option<Kill>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { seed, role } = Options::parse();
    let ended = match role {
        None => play(Script::from_seed(seed)).await,
        Some(Role::Service { listen, provider, database, stop }) => {
            service::run(&listen, &provider, &database, stop).await.map(|()| true)
        }
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("checkout: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays one order, and says whether it was charged once and answered.
async fn play(script: Script) -> Result<bool, Box<dyn Error>> {
    let Script { loss, kill } = script;
    let timeline = Timeline::start();
    timeline.say("", &format!("the provider's answer {loss}; the service is killed {kill}"));
    let folder = tempfile::tempdir()?;
    let provider = Provider::start(loss, kill == Kill::Charged, timeline.clone()).await?;
    let service = Process::start(&provider.url(), &folder.path().join("shop.db"), kill, timeline.clone()).await?;

    let url = format!("{}/orders", service.url());
    let order = caller::order(&url, None, &timeline);
    let (answered, service) = tokio::try_join!(order, kill_and_restart(service, &provider))?;
    timeline.say("caller", "asks once more, for the same order under the same key");
    let again = caller::order(&url, Some(answered.key.clone()), &timeline).await?;

    let orders = caller::orders(service.url()).await?;
    let charges = provider.ledger();
    println!();
    for charge in &charges {
        println!("ledger of the provider: {charge}");
    }
    let plural = if charges.len() == 1 { "" } else { "s" };
    println!("{} charge{plural}, {orders} in the shop's books", charges.len());
    Ok(charges.len() == 1 && orders == "1 order" && answered.is_order() && again.body == answered.body)
}

async fn kill_and_restart(service: Process, provider: &Provider) -> Result<Process, Box<dyn Error>> {
    tokio::select! {
        stopped = service.stopped() => stopped?,
        () = provider.charged() => {}
    }
    service.kill().await?;
    service.restart().await
}
