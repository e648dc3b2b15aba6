//! The bank as a process of its own, to be killed.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use idempotency_layer::UnknownOutcome;
use idempotency_tests::bank::{Bank, Books, PostgresBooks, SqliteBooks};
use idempotency_tests::failpoint::{Failpoint, Point};

#[derive(Parser)]
struct Options {
    /// The SQLite file, or the URL of the PostgreSQL database.
    #[arg(long)]
    database: String,
    /// How long a transaction in PostgreSQL may do nothing, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    max_idle: u64,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The lease, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    lease: u64,
    /// The retention, in milliseconds.
    #[arg(long, default_value_t = 24 * 60 * 60 * 1000)]
    retention: u64,
    /// Where a provider charges each transfer before it is written into the books.
    #[arg(long)]
    provider: Option<String>,
    /// How long each handler takes before its transaction, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// Hold what is unknown instead of running it again.
    #[arg(long)]
    hold: bool,
    /// After how many lapsed runs a key is held.
    #[arg(long, default_value_t = 5)]
    max_attempts: u32,
    /// Where a request stops.
    #[arg(long)]
    failpoint: Option<Point>,
    /// How many requests pass there before.
    #[arg(long, default_value_t = 0)]
    passing: u32,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    if options.database.starts_with("postgres://") {
        let max_idle = Duration::from_millis(options.max_idle);
        serve(&PostgresBooks::open(&options.database, max_idle).await, &options).await;
    } else {
        serve(&SqliteBooks::open(&options.database).await, &options).await;
    }
}

async fn serve(books: &impl Books, options: &Options) {
    let failpoint = Failpoint::new(options.failpoint, options.passing);
    let mut bank = Bank::new(books, failpoint, Duration::from_millis(options.delay));
    if let Some(url) = &options.provider {
        bank = bank.provider(url);
    }
    let unknown = if options.hold { UnknownOutcome::Hold } else { UnknownOutcome::Rerun };
    let router = bank.router(|layer| {
        layer
            .lease(Duration::from_millis(options.lease))
            .retention(Duration::from_millis(options.retention))
            .unknown_outcome(unknown)
            .max_attempts(options.max_attempts)
    });
    let listener = tokio::net::TcpListener::bind(options.listen).await.expect("a free address");
    println!("listening on http://{}", listener.local_addr().expect("an address"));
    axum::serve(listener, router).await.expect("a server");
}
