//! Two whole programs: a server with axum, and one with plain hyper. Both pay once for two requests.
//!
//! # With axum
//!
//! The ledger is in the SQLite file of the records, and its line is committed with the answer. Features: `axum`, `sqlite`.
//!
#![cfg_attr(all(feature = "axum", feature = "sqlite"), doc = "```")]
#![cfg_attr(not(all(feature = "axum", feature = "sqlite")), doc = "```ignore")]
//! use std::error::Error;
//!
//! use axum::Router;
//! use axum::extract::State;
//! use axum::http::StatusCode;
//! use axum::routing::post;
//! use idempotency_layer::{IdempotencyLayer, Operation, SqliteStore, UnknownOutcome};
//! use tokio_util::task::TaskTracker;
//!
//! async fn pay(State(store): State<SqliteStore>, operation: Operation) -> Result<StatusCode, StatusCode> {
//!     let failed = |error: &dyn Error| {
//!         eprintln!("{error}");
//!         StatusCode::INTERNAL_SERVER_ERROR
//!     };
//!     let mut transaction = operation.transaction(&store).await.map_err(|error| failed(&error))?;
//!     let mut connection = transaction.connection().await.map_err(|error| failed(&error))?;
//!     let paid = sqlx::query("INSERT INTO payment (amount) VALUES (10)").execute(&mut *connection).await;
//!     paid.map(|_| StatusCode::CREATED).map_err(|error| failed(&error))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let folder = tempfile::tempdir()?;
//!     let store = SqliteStore::connect(&format!("sqlite:{}/shop.db", folder.path().display())).await?;
//!     store.migrate().await?;
//!     let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}/shop.db", folder.path().display())).await?;
//!     sqlx::query("CREATE TABLE payment (amount INTEGER NOT NULL)").execute(&pool).await?;
//!
//!     let runs = TaskTracker::new();
//!     let layer = IdempotencyLayer::new(store.clone())
//!         .scope("payment:create")
//!         .principal(|parts| Some(parts.headers.get("x-account")?.to_str().ok()?.to_owned()))
//!         .unknown_outcome(UnknownOutcome::Hold)
//!         .tracker(runs.clone())
//!         .validate()?;
//!     let app = Router::new().route("/payments", post(pay)).route_layer(layer).with_state(store.clone());
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     let url = format!("http://{}/payments", listener.local_addr()?);
//!     let sweeper = store.spawn_sweeper(std::time::Duration::from_secs(60));
//!     let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//!     let draining = runs.clone();
//!     let server = tokio::spawn(async move {
//!         let stopped = async move {
//!             // Here: SIGTERM. From now on new runs are refused.
//!             drop(stopped.await);
//!             draining.close();
//!         };
//!         axum::serve(listener, app).with_graceful_shutdown(stopped).await
//!     });
//!
//!     for replayed in [false, true] {
//!         let request = reqwest::Client::new().post(&url).header("x-account", "alice");
//!         let response = request.header("idempotency-key", "order-4711").send().await?;
//!         assert_eq!(response.status(), 201);
//!         assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
//!     }
//!     let payments: i64 = sqlx::query_scalar("SELECT count(*) FROM payment").fetch_one(&pool).await?;
//!     assert_eq!(payments, 1);
//!
//!     drop(stop);
//!     server.await??;
//!     runs.wait().await;
//!     drop(sweeper);
//!     Ok(())
//! }
//! ```
//!
//! # With plain hyper
//!
//! Any tower service will do, and any body. Features: none.
//!
//! ```
//! use std::convert::Infallible;
//! use std::error::Error;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use hyper::body::Incoming;
//! use hyper_util::rt::{TokioExecutor, TokioIo};
//! use hyper_util::server::conn::auto::Builder;
//! use hyper_util::service::TowerToHyperService;
//! use idempotency_layer::{IdempotencyLayer, MemoryStore, Operation, RequestBody};
//! use tower::ServiceBuilder;
//!
//! static PAYMENTS: AtomicU32 = AtomicU32::new(0);
//!
//! async fn pay(request: Request<RequestBody<Incoming>>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     let operation = request.extensions().get::<Operation>().expect("keyed requests only");
//!     PAYMENTS.fetch_add(1, Ordering::SeqCst);
//!     Ok(Response::new(Full::from(format!("paid at attempt {}", operation.attempt()))))
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let layer = IdempotencyLayer::new(MemoryStore::new()).anonymous(true).validate()?;
//!     let service = ServiceBuilder::new().layer(layer).service_fn(pay);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     let url = format!("http://{}/", listener.local_addr()?);
//!     tokio::spawn(async move {
//!         while let Ok((socket, _)) = listener.accept().await {
//!             let service = TowerToHyperService::new(service.clone());
//!             tokio::spawn(async move {
//!                 let connection = Builder::new(TokioExecutor::new());
//!                 if let Err(error) = connection.serve_connection(TokioIo::new(socket), service).await {
//!                     eprintln!("a connection failed: {error}");
//!                 }
//!             });
//!         }
//!     });
//!
//!     for _ in 0..2 {
//!         let response = reqwest::Client::new().post(&url).header("idempotency-key", "order-4711").send().await?;
//!         assert_eq!(response.text().await?, "paid at attempt 1");
//!     }
//!     assert_eq!(PAYMENTS.load(Ordering::SeqCst), 1);
//!     assert_eq!(reqwest::Client::new().post(&url).send().await?.status(), 400);
//!     Ok(())
//! }
//! ```
