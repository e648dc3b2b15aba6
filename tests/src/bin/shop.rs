//! The shop as a process of its own, to be killed.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use idempotency_tests::failpoint::{Failpoint, Point};
use idempotency_tests::shop::{Books, PostgresBooks, RedisBooks, Shop, SqliteBooks, Till};
use idempotency_tests::wire::Version;

#[derive(Parser)]
struct Options {
    /// The URL of the store, of SQLite, Redis or PostgreSQL.
    #[arg(long)]
    store: String,
    /// Where charges are asked for.
    #[arg(long)]
    charges: String,
    /// Ask over HTTP/2.
    #[arg(long)]
    http2: bool,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The lease, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    lease: u64,
    /// Where a request stops.
    #[arg(long)]
    failpoint: Option<Point>,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::ERROR).init();
    match options.store.split_once(':') {
        Some(("postgres", _)) => serve(PostgresBooks::open(&options.store).await, &options).await,
        Some(("redis", _)) => serve(RedisBooks::open(&options.store).await, &options).await,
        _ => serve(SqliteBooks::open(&options.store).await, &options).await,
    }
}

async fn serve(books: impl Books, options: &Options) {
    let version = if options.http2 { Version::Http2 } else { Version::Http1 };
    let till = Till::new(&options.charges, version);
    let shop = Shop::new(books, till, Failpoint::new(options.failpoint, 0));
    let router = shop.router(Duration::from_millis(options.lease));
    let listener = tokio::net::TcpListener::bind(options.listen).await.expect("a free address");
    println!("listening on http://{}", listener.local_addr().expect("an address"));
    axum::serve(listener, router).await.expect("a server");
}
