//! One run for each `Idempotency-Key`, and the same answer to every retry.
//!
//! A client that gets no answer cannot tell whether its request was lost or the response was, so it sends the request
//! again. [`IdempotencyLayer`] makes that safe for any [`tower`](https://docs.rs/tower) service:
//!
//! 1. A keyed request (default: every POST) without an `Idempotency-Key` is refused.
//! 2. At most one *holder* of a key at a time runs the handler, in a task of its own: a client that disconnects does
//!    not stop it.
//! 3. The response is recorded before it is sent; where the store is away for longer than the
//!    [record deadline](IdempotencyLayer::record_deadline), it is sent and the recording goes on. Once recorded, every
//!    later request with the key gets it, byte for byte, for as long as the retention lasts.
//! 4. Another request under the same key is refused, before, while and after the first one runs.
//! 5. Each run gets a [`Propagation`], which derives from the key a key for each call that the run makes to others: the
//!    same one on each attempt, so that a run which starts again does not repeat what those who honour keys have done.
//!
//! What this does **not** promise:
//!
//! - A holder that lost its lease is told through its [cancellation token](Operation::cancellation). Code that ignores
//!   the token may run beside its successor.
//! - When the process dies in mid-run, or the handler answers 5xx, nobody knows what happened. By default the next
//!   retry runs the handler again, so an effect that is neither in the [transaction](Operation::transaction) nor behind
//!   a derived key can happen twice. [`UnknownOutcome::Hold`] refuses instead.
//! - Effects in your own database are exactly-once only through the transaction of the run.
//! - Effects in somebody else's system are exactly-once only if that system honours the derived key.
//!
//! [`guarantees`] has it by store, way of completion and policy; [`serving`] has two whole programs.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::{BodyExt, Full};
//! use idempotency_layer::{IdempotencyLayer, MemoryStore, RequestBody};
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! static CHARGES: AtomicU32 = AtomicU32::new(0);
//!
//! async fn charge(_: Request<RequestBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
//!     let charge = CHARGES.fetch_add(1, Ordering::SeqCst) + 1;
//!     Ok(Response::new(Full::from(format!("charge {charge}"))))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut service = ServiceBuilder::new()
//!     .layer(IdempotencyLayer::new(MemoryStore::new()).anonymous(true))
//!     .service_fn(charge);
//!
//! for _ in 0..2 {
//!     let request = Request::post("/charges").header("idempotency-key", "order-4711").body(Full::from("10 EUR"))?;
//!     let response = service.ready().await?.call(request).await?;
//!     assert_eq!(response.into_body().collect().await?.to_bytes(), "charge 1");
//! }
//! assert_eq!(CHARGES.load(Ordering::SeqCst), 1);
//!
//! let without_key = Request::post("/charges").body(Full::from("10 EUR"))?;
//! let response = service.ready().await?.call(without_key).await?;
//! assert_eq!(response.status(), StatusCode::BAD_REQUEST);
//! # Ok(())
//! # }
//! ```
//!
//! # Calls to others
//!
//! - A handler finds its [`Propagation`] in the request's extensions, as an argument (with the feature `axum`), and,
//!   deep inside, as [`Propagation::current`].
//! - It is the current one while the handler runs and while its body is read for the record. A task of the handler's
//!   own has it if it was started with [`Propagation::spawn`], and not if it was with `tokio::spawn`. A stream that
//!   goes on after the layer has stopped reading has none, and takes a clone along if it needs one.
//! - Its scope and principal are those of the layer, and it has no deadline. Of two layers with different scopes it is
//!   the inner one's.
//! - A run that has given a derived key away is not forgotten, whatever it answers; nor is one that has left a clone
//!   behind. The [`policy`] says what becomes of the key instead.
//!
//! Here the first attempt fails after it has asked for a charge, and the second one asks for the same one:
//!
//! ```
//! use std::sync::Mutex;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use idempotency_layer::{
//!     DerivedKeyReused, IdempotencyKey, IdempotencyLayer, MemoryStore, Propagation, RequestBody,
//! };
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! /// What was sent to the one who charges, as the `Idempotency-Key` of each call.
//! static SENT: Mutex<Vec<IdempotencyKey>> = Mutex::new(Vec::new());
//!
//! async fn order(request: Request<RequestBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, DerivedKeyReused> {
//!     let run = request.extensions().get::<Propagation>().expect("keyed requests only");
//!     let charge = run.operation("charge").with("order-4711").key()?;
//!     SENT.lock().unwrap().push(charge);
//!     let mut response = Response::new(Full::default());
//!     if run.attempt().get() == 1 {
//!         *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
//!     }
//!     Ok(response)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut service = ServiceBuilder::new()
//!     .layer(IdempotencyLayer::new(MemoryStore::new()).scope("order:create").anonymous(true))
//!     .service_fn(order);
//!
//! for status in [503, 200] {
//!     let request = Request::post("/orders").header("idempotency-key", "a-clients-key").body(Full::default())?;
//!     assert_eq!(service.ready().await?.call(request).await?.status(), status);
//! }
//! let sent = SENT.lock().unwrap();
//! assert_eq!(sent[0], sent[1]);
//! assert_ne!(sent[0].as_str(), "a-clients-key");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! - `axum`: [`Operation`] and [`Propagation`] as extractors, [`TransactionError`] as a response, and the full path of
//!   nested routers in the fingerprint.
//! - `multipart`: forms fingerprinted by their parts.
//! - `postgres`: the `PostgresStore`, for many processes and for money, with the handler's transaction.
//! - `redis`: the `RedisStore`, for many processes, on Redis or Valkey, single, behind Sentinel or as a cluster.
//! - `sqlite`: the `SqliteStore`, durable on one machine, with the handler's transaction.
//! - `conformance`: the lists of properties that every store and every transactional store keeps, to run on a store of
//!   your own.

mod admission;
mod adopted;
mod body;
mod bound;
mod caller;
mod clock;
mod collect;
mod config;
#[cfg(feature = "axum")]
mod extract;
pub mod fingerprint;
mod future;
#[doc = include_str!("../GUARANTEES.md")]
pub mod guarantees {}
mod hash;
mod heartbeat;
mod intake;
mod joined;
mod layer;
mod operation;
pub mod policy;
mod refusal;
mod replay;
mod run;
mod service;
pub mod serving;
mod settle;
pub mod store;
mod transaction;
mod undo;
mod verdict;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use self::body::{RequestBody, ResponseBody};
pub use self::clock::{Clock, ClockHand};
pub use self::config::{ConfigError, ConfigErrorKind};
#[cfg(feature = "axum")]
pub use self::extract::MissingOperation;
pub use self::fingerprint::{Fingerprinted, RequestFingerprint};
pub use self::future::ResponseFuture;
pub use self::hash::FieldHasher;
pub use self::layer::IdempotencyLayer;
pub use self::operation::Operation;
pub use self::policy::Outcome;
pub use self::service::Idempotency;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::store::{
    Fingerprint, MemoryStore, RecordId, SharedStore, SharedTransactionalStore, Store, StoreError, StoreErrorKind,
    TransactionalStore, UnknownOutcome,
};
#[cfg(feature = "postgres")]
pub use self::store::{PostgresStore, PostgresTransaction};
#[cfg(feature = "sqlite")]
pub use self::store::{SqliteStore, SqliteTransaction};
pub use self::transaction::{TransactionError, TransactionErrorKind, TransactionGuard};

// What a layer is configured with and what its handlers get, so that a service need not depend on the crate of shared
// words for it. Whoever must name the `Operation` of a derived key, which is not the layer's, finds it in
// `propagation`.
#[cfg(feature = "axum")]
pub use idempotency_shared::MissingPropagation;
pub use idempotency_shared::{
    DerivationSecret, DerivationSecretError, DerivedKeyReused, IdempotencyKey, KeyLimit, Problem, ProblemCode,
    Propagation, propagation,
};
