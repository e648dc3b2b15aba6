//! A layer takes its settings in any order, checks them as a whole, and makes services that share its limits.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, Response};
use idempotency_shared::{DerivationSecret, IdempotencyKey, KeyLimit, Problem};
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::config::{Config, ConfigError};
use crate::fingerprint::RequestFingerprint;
use crate::hash::{HashSecret, record_id};
use crate::service::{Idempotency, Shared};
use crate::store::{RecordId, Store, UnknownOutcome};

/// Wraps a service so that each `Idempotency-Key` runs once.
///
/// With its defaults a POST without a key is refused, every other method passes untouched, a key means its request for
/// 24 hours, and a dead process keeps a key for 30 seconds.
///
/// The inner service takes a `Request<RequestBody<B>>` where the outer one takes a `Request<B>`, and is `Clone + Send +
/// 'static`, since each run has one of its own. Runs are tasks of the tokio runtime that the call is polled on.
///
/// The request that a run gets has in its extensions the [`Operation`](crate::Operation), for what concerns the record, and
/// the [`Propagation`](crate::Propagation), which derives the keys of the calls that the run makes.
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
    tracker: TaskTracker,
    /// Made by the first service and shared by all, also by those of clones: routers make a service of a layer more
    /// often than one would think, up to once for each request.
    shared: Arc<OnceLock<Arc<Shared<St>>>>,
}

impl<St: Store> IdempotencyLayer<St> {
    /// A layer with the defaults that the setters name.
    pub fn new(store: St) -> Self {
        Self { store, config: Config::default(), tracker: TaskTracker::new(), shared: Arc::default() }
    }

    /// Names the operation. The same key under two scopes is two operations; within one, the same key for another
    /// request is refused. Default: `default`, for every layer that names none.
    ///
    /// The keys derived for the calls of a run depend on it: services whose callers use the same keys, and whose calls go
    /// to one provider as those of one client, need scopes of their own.
    pub fn scope(self, scope: impl Into<Arc<str>>) -> Self {
        self.set(|config| config.scope = scope.into())
    }

    /// Says whose key it is, from what the layers outside this one have authenticated. Two principals never meet.
    /// Default: unset. Where it is unset or names nobody, the [credentials](Self::credentials) are compared.
    pub fn principal(self, principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.set(|config| config.principal = Some(Arc::new(principal)))
    }

    /// The headers that tell callers apart where no [`principal`](Self::principal) does. Default: `authorization`,
    /// `cookie`, `x-api-key`.
    pub fn credentials(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.set(|config| config.credentials = names.into_iter().collect())
    }

    /// Says that requests without any credentials are meant to be. Default: false, and the first one is warned of,
    /// since all such callers share their keys.
    pub fn anonymous(self, anonymous: bool) -> Self {
        self.set(|config| config.anonymous = anonymous)
    }

    /// The methods that are keyed. Default: POST. All others pass untouched.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.set(|config| config.methods = methods.into_iter().collect())
    }

    /// The header that carries the key. Default: `idempotency-key`.
    pub fn header(self, name: HeaderName) -> Self {
        self.set(|config| config.header = name)
    }

    /// The longest key that is accepted, unquoted. Default: 255 characters.
    pub fn key_limit(self, limit: KeyLimit) -> Self {
        self.set(|config| config.key_limit = limit)
    }

    /// Whether a keyed method needs a key. Default: true. With false, requests without one pass untouched.
    pub fn require_key(self, required: bool) -> Self {
        self.set(|config| config.require_key = required)
    }

    /// How long a holder that went silent keeps others out. It is renewed every third of this while the handler runs,
    /// however long that takes. Default: 30 s; 100 ms to 24 h.
    pub fn lease(self, lease: Duration) -> Self {
        self.set(|config| config.lease = lease)
    }

    /// How long a key means its request, from the last write of its record. Default: 24 h; at least the lease, at most
    /// ten years. Afterwards a late retry is a new operation: choose it longer than any client goes on retrying. Held
    /// keys do not expire, and neither do runs under [`UnknownOutcome::Hold`] that went silent.
    pub fn retention(self, retention: Duration) -> Self {
        self.set(|config| config.retention = retention)
    }

    /// The largest request body, in bytes. Default: 1 MiB. A larger one is refused with 413 before anything runs.
    pub fn max_request_body(self, bytes: usize) -> Self {
        self.set(|config| config.max_request_body = bytes)
    }

    /// The largest response body that is recorded, in bytes. Default: 1 MiB. The client gets a larger one whole; its
    /// retries get `response-unavailable`.
    pub fn max_response_body(self, bytes: usize) -> Self {
        self.set(|config| config.max_response_body = bytes)
    }

    /// How many keyed requests run at once, over all services of this layer. Default: 1024. More are refused with 503
    /// before their key is claimed.
    pub fn max_running(self, runs: usize) -> Self {
        self.set(|config| config.max_running = runs)
    }

    /// How many bytes of request bodies are held at once, over all services of this layer. Default: 64 MiB. More are
    /// refused with 503 before their key is claimed.
    ///
    /// A body that comes slowly holds its bytes meanwhile. Bound the time outside, where the server reads.
    pub fn max_buffered(self, bytes: usize) -> Self {
        self.set(|config| config.max_buffered = bytes)
    }

    /// After how many runs that lapsed, as a crash makes them, a key is held for an operator instead of run again.
    /// Default: 5. Runs that answered do not count.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.set(|config| config.max_attempts = attempts)
    }

    /// What becomes of a key whose run may or may not have taken effect. Default: [`UnknownOutcome::Rerun`].
    pub fn unknown_outcome(self, unknown: UnknownOutcome) -> Self {
        self.set(|config| config.unknown = unknown)
    }

    /// What makes two requests the same. Default: [`RequestFingerprint::exact`].
    pub fn fingerprint(self, fingerprint: RequestFingerprint) -> Self {
        self.set(|config| config.fingerprint = fingerprint)
    }

    /// Headers that replays repeat although they speak of one moment, as `date` or `set-cookie` do. Default: none.
    /// Hop-by-hop fields are never repeated.
    pub fn always_store(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.set(|config| config.header_rules.always = names.into_iter().collect())
    }

    /// Headers that replays do not repeat, beside hop-by-hop fields, `date`, `age`, `server`, `set-cookie`,
    /// `www-authenticate`, `proxy-authenticate`, `alt-svc`, trace and request ids, and rate limits. Default: none.
    /// Outweighs [`always_store`](Self::always_store).
    pub fn never_store(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.set(|config| config.header_rules.never = names.into_iter().collect())
    }

    /// Hashes record ids and fingerprints under a secret, so that nobody who reads the store can confirm a guessed key
    /// or body. Default: unset. All processes on one store need the same secret; with another one every key is new.
    pub fn hash_secret(self, secret: impl AsRef<[u8]>) -> Self {
        self.set(|config| config.secret = HashSecret::new(secret.as_ref()))
    }

    /// Derives the keys that a run gives to the calls it makes ([`Propagation`](crate::Propagation)) under a secret, so that
    /// nobody who knows a client's key can compute them. Default: unset. All processes that may run a key again need the
    /// same secret; with another one a run that starts again makes its calls under new keys, so that they take effect
    /// again.
    pub fn derivation_secret(self, secret: DerivationSecret) -> Self {
        self.set(|config| config.derivation_secret = Some(secret))
    }

    /// Where clients read about keys: sent as `Link: <uri>; rel="describedby"` with every refusal of a missing or
    /// malformed key. Default: unset.
    pub fn documentation(self, uri: impl Into<String>) -> Self {
        self.set(|config| config.documentation = Some(uri.into()))
    }

    /// Whether answers that are recorded, and their replays, say for how many more seconds the key means its request, as
    /// `Idempotency-Expires-In`. Default: false.
    pub fn publish_expiry(self, publish: bool) -> Self {
        self.set(|config| config.publish_expiry = publish)
    }

    /// Renders problems in another way: `render` gets each one with the response that would be sent, whose body is the
    /// JSON of RFC 9457, and gives the one that is. Status and `Retry-After` are what clients go by; keep them, and
    /// `Idempotency-Problem`. Default: as it comes.
    ///
    /// A [`TransactionError`](crate::TransactionError) that a handler answers with is rendered by the layer that runs the
    /// handler. What a layer inside has answered is that layer's, and left as it is.
    pub fn problem_response(
        self,
        render: impl Fn(&Problem, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.set(|config| config.render = Some(Arc::new(render)))
    }

    /// How long a request waits for a claim that the store does not answer, and a finished run for the store to take its
    /// record before the client is answered all the same; the recording goes on. Default: 5 s; at most 24 h.
    pub fn record_deadline(self, deadline: Duration) -> Self {
        self.set(|config| config.record_deadline = deadline)
    }

    /// Tracks the runs, so that a shutdown can await them; it is [`tokio_util::task::TaskTracker`]. Once it is closed the
    /// service is draining: new keyed requests are refused with 503. Default: a tracker of the layer's own.
    ///
    /// To shut down: close the tracker, let the server end, wait for the tracker, drop the store.
    pub fn tracker(self, tracker: TaskTracker) -> Self {
        Self { tracker, shared: Arc::default(), ..self }
    }

    /// The id of the record for a key, as it stands in the store and in the `record` member of a problem: what an
    /// operator needs who knows the key and the principal.
    #[must_use]
    pub fn record_id(&self, principal: Option<&str>, key: &IdempotencyKey) -> RecordId {
        record_id(&self.config.secret, &self.config.scope, principal, key.as_str())
    }

    /// Checks the settings as a whole. Without this, [`layer`](Layer::layer) panics with the same words.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which setting is wrong and what to do: a lease out of range, a retention shorter than the
    /// lease, an empty scope.
    pub fn validate(self) -> Result<Self, ConfigError> {
        self.config.check().map(|()| self)
    }

    /// Changes a setting; what was made with the old ones is not shared any more.
    fn set(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self.shared = Arc::default();
        self
    }
}

impl<St: Store, Svc> Layer<Svc> for IdempotencyLayer<St> {
    type Service = Idempotency<Svc, St>;

    /// # Panics
    ///
    /// When the settings contradict themselves, with the text of the [`ConfigError`]: a service without idempotency
    /// must not start. [`validate`](IdempotencyLayer::validate) tells beforehand.
    fn layer(&self, inner: Svc) -> Self::Service {
        let shared = self.shared.get_or_init(|| {
            if let Err(error) = self.config.check() {
                panic!("invalid IdempotencyLayer: {error}");
            }
            Arc::new(Shared::new(self.store.clone(), self.config.clone(), self.tracker.clone()))
        });
        Idempotency::new(inner, Arc::clone(shared))
    }
}
