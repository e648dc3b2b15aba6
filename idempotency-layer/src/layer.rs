//! The layer: where the settings are made, and where a service comes of them.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method};
use idempotency_shared::KeyLimit;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::config::{Config, ConfigError};
use crate::fingerprint::RequestFingerprint;
use crate::hash::HashSecret;
use crate::service::{Idempotency, Shared};
use crate::store::{Store, UnknownOutcome};

/// Wraps a service so that each `Idempotency-Key` runs once.
///
/// With its defaults a POST without a key is refused, every other method passes untouched, a key means its request for
/// 24 hours, and a dead process keeps a key for 30 seconds.
///
/// Clones, and all services made by one layer, share its limits and its tracker.
///
/// ```
/// use idempotency_layer::{IdempotencyLayer, MemoryStore};
///
/// let layer = IdempotencyLayer::new(MemoryStore::new())
///     .scope("payment:create")
///     .principal(|parts| Some(parts.headers.get("x-account")?.to_str().ok()?.to_owned()));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct IdempotencyLayer<St> {
    store: St,
    config: Config,
    running: Arc<Semaphore>,
    buffered: Arc<Semaphore>,
    undoing: Arc<Semaphore>,
    tracker: TaskTracker,
}

impl<St: Store> IdempotencyLayer<St> {
    /// A layer with the defaults that the setters name.
    pub fn new(store: St) -> Self {
        let config = Config::default();
        let running = Arc::new(Semaphore::new(config.max_running));
        let buffered = Arc::new(Semaphore::new(config.max_buffered));
        let undoing = Arc::new(Semaphore::new(config.max_running));
        Self { store, config, running, buffered, undoing, tracker: TaskTracker::new() }
    }

    /// Names the operation. The same key under two scopes is two operations; within one, the same key for another
    /// request is refused. Default: `default`, for every layer that names none.
    pub fn scope(mut self, scope: impl Into<Arc<str>>) -> Self {
        self.config.scope = scope.into();
        self
    }

    /// Says whose key it is, from what the layers outside this one have authenticated; `None` is nobody. Two
    /// principals never meet. Default: unset, and the [credentials](Self::credentials) are compared instead.
    pub fn principal(mut self, principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.config.principal = Some(Arc::new(principal));
        self
    }

    /// The headers that tell callers apart while no [`principal`](Self::principal) is set. Default: `authorization`,
    /// `cookie`, `x-api-key`.
    pub fn credentials(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.config.credentials = names.into_iter().collect();
        self
    }

    /// Says that requests without any credentials are meant to be. Default: false, and the first one is warned of,
    /// since all such callers share their keys.
    pub fn anonymous(mut self, anonymous: bool) -> Self {
        self.config.anonymous = anonymous;
        self
    }

    /// The methods that are keyed. Default: POST. All others pass untouched.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        self
    }

    /// The header that carries the key. Default: `idempotency-key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.config.header = name;
        self
    }

    /// The longest key that is accepted, unquoted. Default: 255 characters.
    pub fn key_limit(mut self, limit: KeyLimit) -> Self {
        self.config.key_limit = limit;
        self
    }

    /// Whether a keyed method needs a key. Default: true. With false, requests without one pass untouched.
    pub fn require_key(mut self, required: bool) -> Self {
        self.config.require_key = required;
        self
    }

    /// How long a holder that went silent keeps others out. It is renewed every third of this while the handler runs,
    /// however long that takes. Default: 30 s; 100 ms to 24 h.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How long a key means its request, from the last write of its record. Default: 24 h; at least the lease, at most
    /// ten years. Afterwards a late retry is a new operation: choose it longer than any client goes on retrying.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.config.retention = retention;
        self
    }

    /// The largest request body, in bytes. Default: 1 MiB. A larger one is refused with 413 before anything runs.
    pub fn max_request_body(mut self, bytes: usize) -> Self {
        self.config.max_request_body = bytes;
        self
    }

    /// The largest response body that is recorded, in bytes. Default: 1 MiB. The client gets a larger one whole; its
    /// retries get `response-unavailable`.
    pub fn max_response_body(mut self, bytes: usize) -> Self {
        self.config.max_response_body = bytes;
        self
    }

    /// How many keyed requests run at once, over all services of this layer. Default: 1024. More are refused with 503
    /// before their key is claimed.
    pub fn max_running(mut self, runs: usize) -> Self {
        self.config.max_running = runs;
        self.running = Arc::new(Semaphore::new(runs.min(Semaphore::MAX_PERMITS)));
        self.undoing = Arc::new(Semaphore::new(runs.min(Semaphore::MAX_PERMITS)));
        self
    }

    /// How many bytes of request bodies are held at once, over all services of this layer. Default: 64 MiB. More are
    /// refused with 503 before their key is claimed.
    pub fn max_buffered(mut self, bytes: usize) -> Self {
        self.config.max_buffered = bytes;
        self.buffered = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
        self
    }

    /// After how many runs that lapsed, as a crash makes them, a key is held for an operator instead of run again.
    /// Default: 5. Runs that answered do not count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.max_attempts = attempts;
        self
    }

    /// What becomes of a key whose run may or may not have taken effect. Default: [`UnknownOutcome::Rerun`].
    pub fn unknown_outcome(mut self, unknown: UnknownOutcome) -> Self {
        self.config.unknown = unknown;
        self
    }

    /// What makes two requests the same. Default: [`RequestFingerprint::exact`].
    pub fn fingerprint(mut self, fingerprint: RequestFingerprint) -> Self {
        self.config.fingerprint = fingerprint;
        self
    }

    /// Hashes record ids and fingerprints under a secret, so that nobody who reads the store can confirm a guessed key
    /// or body. Default: unset. All processes on one store need the same secret; with another one every key is new.
    pub fn hash_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.config.secret = HashSecret::new(secret.as_ref());
        self
    }

    /// Where clients read about keys: sent as `Link: <uri>; rel="describedby"` with every refusal of a missing or
    /// malformed key. Default: unset.
    pub fn documentation(mut self, uri: impl Into<String>) -> Self {
        self.config.documentation = Some(uri.into());
        self
    }

    /// How long a finished run waits for the store to take its record before the client is answered all the same; the
    /// recording goes on. Default: 5 s; at most 24 h.
    pub fn record_deadline(mut self, deadline: Duration) -> Self {
        self.config.record_deadline = deadline;
        self
    }

    /// Tracks the runs, so that a shutdown can await them. Once it is closed the service is draining: new keyed
    /// requests are refused with 503. Default: a tracker of the layer's own.
    pub fn tracker(mut self, tracker: TaskTracker) -> Self {
        self.tracker = tracker;
        self
    }

    /// Checks the settings as a whole.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which setting is wrong and what to do: a lease out of range, a retention shorter than the
    /// lease, an empty scope.
    pub fn validate(self) -> Result<Self, ConfigError> {
        self.config.check().map(|()| self)
    }
}

impl<St: Store, Svc> Layer<Svc> for IdempotencyLayer<St> {
    type Service = Idempotency<Svc, St>;

    /// # Panics
    ///
    /// When the settings contradict themselves, with the text of the [`ConfigError`]: a service without idempotency
    /// must not start. [`validate`](IdempotencyLayer::validate) tells beforehand.
    fn layer(&self, inner: Svc) -> Self::Service {
        if let Err(error) = self.config.check() {
            panic!("invalid IdempotencyLayer: {error}");
        }
        let shared = Shared::new(
            self.store.clone(),
            self.config.clone(),
            Arc::clone(&self.running),
            Arc::clone(&self.buffered),
            Arc::clone(&self.undoing),
            self.tracker.clone(),
        );
        Idempotency::new(inner, shared)
    }
}
