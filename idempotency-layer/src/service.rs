//! A request passes, is answered at once, or is read, claimed and run.
//!
//! One request's way through the files of this crate:
//!
//! ```text
//! admission ── passes ─────────────────────────────────────► inner service
//!     │ keyed
//! intake (the body, whole) ─► fingerprint, caller ─► claim ── anything but `Acquired` ─► replay, refusal
//!                                                      │
//!                                     run (a task of its own, with its heartbeat)
//!                                                      │
//!                         handler ─► collect ─► policy ─► settle (the record) ─► the client's answer
//! ```

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use idempotency_shared::{IDEMPOTENCY_EXPIRES_IN, IdempotencyKey, Problem, Propagation};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower_service::Service;

use crate::admission::{Admission, admit};
use crate::adopted::{Adopted, Claiming};
use crate::body::{RequestBody, ResponseBody};
use crate::bound::{Bound, Share};
use crate::caller::{Caller, caller, caller_fingerprint, fingerprint_of_nobody};
use crate::config::Config;
use crate::fingerprint::Fingerprinted;
use crate::future::ResponseFuture;
use crate::hash::record_id;
use crate::heartbeat::Heartbeats;
use crate::intake::{self, Intake};
use crate::policy::{Outcome, outcome_of};
use crate::refusal::refusal;
use crate::replay::replay;
use crate::run::{self, Held};
use crate::store::{CallerFingerprint, Claim, ClaimRequest, Lease, LeaseId, Store, StoreError, StoreErrorKind};
use crate::undo;

/// Runs each key once. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
///
/// It is ready when the inner service is. The one that was polled ready is the one that is called; a clone takes its
/// place.
#[derive(Clone, Debug)]
pub struct Idempotency<Svc, St> {
    inner: Svc,
    shared: Arc<Shared<St>>,
}

impl<Svc, St> Idempotency<Svc, St> {
    pub(crate) fn new(inner: Svc, shared: Arc<Shared<St>>) -> Self {
        Self { inner, shared }
    }
}

/// What all services of one layer have in common.
#[derive(Debug)]
pub(crate) struct Shared<St> {
    pub(crate) store: St,
    pub(crate) config: Config,
    running: Arc<Bound>,
    buffered: Arc<Bound>,
    /// Of claims that are being taken back, as many as may run.
    undoing: Arc<Bound>,
    pub(crate) heartbeats: Arc<Heartbeats<St>>,
    tracker: TaskTracker,
    documentation: Option<HeaderValue>,
    warned_of_anonymous: AtomicBool,
    /// The fingerprint of a caller who is known otherwise, or not at all.
    no_credentials: CallerFingerprint,
}

impl<St: Store> Shared<St> {
    pub(crate) fn new(store: St, config: Config, tracker: TaskTracker) -> Self {
        Self {
            running: Bound::new(config.max_running),
            buffered: Bound::new(config.max_buffered),
            undoing: Bound::new(config.max_running),
            heartbeats: Arc::new(Heartbeats::new(store.clone())),
            documentation: config.documentation_link(),
            no_credentials: fingerprint_of_nobody(&config.secret),
            store,
            config,
            tracker,
            warned_of_anonymous: AtomicBool::new(false),
        }
    }

    pub(crate) fn refuse<B: Body>(&self, problem: Problem) -> Response<ResponseBody<B>> {
        tracing::debug!(scope = %self.config.scope, code = problem.code().as_str(), "a keyed request was refused");
        refusal(problem, self.documentation.as_ref(), self.config.render.as_ref())
    }

    /// Tells a client for how long its key means its request, where that is to be told. Whole seconds, and none too many.
    pub(crate) fn publish_expiry(&self, expires_in: Duration, headers: &mut HeaderMap) {
        if self.config.publish_expiry {
            headers.insert(IDEMPOTENCY_EXPIRES_IN, HeaderValue::from(expires_in.as_secs()));
        }
    }

    /// Refuses a request that is not run. A layer outside, which runs this one, hears that its key may be tried again.
    pub(crate) fn refuse_unrun<B: Body>(&self, problem: Problem) -> Response<ResponseBody<B>> {
        let mut response = self.refuse(problem);
        if outcome_of(response.status()) != Outcome::NothingRan {
            response.extensions_mut().insert(Outcome::Free);
        }
        response
    }
}

impl<Svc, St, B, RB> Service<Request<B>> for Idempotency<Svc, St>
where
    Svc: Service<Request<RequestBody<B>>, Response = Response<RB>> + Clone + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Error: Send + 'static,
    St: Store,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Send,
    RB: Body + Send + 'static,
    RB::Data: Send,
    RB::Error: Send,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = Svc::Error;
    type Future = ResponseFuture<Svc::Future, RB, Svc::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = &self.shared;
        let store = shared.store.identity();
        match admit(&shared.config, store, request.method(), request.headers(), request.extensions()) {
            Admission::Pass => ResponseFuture::passed(self.inner.call(request.map(RequestBody::client))),
            Admission::Refuse(problem) => ResponseFuture::answered(shared.refuse_unrun(problem)),
            Admission::Run(key) => {
                // The service that was polled ready is the one that is called; its clone waits for the next request.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                let shared = Arc::clone(shared);
                ResponseFuture::keyed(Adopted::new(|claiming| keyed(shared, ready, request, key, claiming)))
            }
        }
    }
}

/// Reads a keyed request. Dropped in here, it has left nothing behind.
// Not an `async fn`, whose future has room for each argument twice.
fn keyed<Svc, St, B, RB>(
    shared: Arc<Shared<St>>,
    inner: Svc,
    request: Request<B>,
    key: IdempotencyKey,
    claiming: Claiming,
) -> impl Future<Output = Result<Response<ResponseBody<RB>>, Svc::Error>> + Send
where
    Svc: Service<Request<RequestBody<B>>, Response = Response<RB>> + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Error: Send + 'static,
    St: Store,
    B: Body + Send + 'static,
    B::Data: Send,
    RB: Body + Send + 'static,
    RB::Data: Send,
    RB::Error: Send,
{
    let (parts, body) = request.into_parts();
    async move {
        // In a block of its own, so that nothing of it is in the future any more when the claim is sent.
        let (request, admitted) = {
            let config = &shared.config;
            let caller = caller(config.principal.as_ref(), &config.credentials, &parts);
            match &caller {
                Caller::PerRequest => {
                    tracing::error!(scope = %config.scope, "credentials change per request and no principal is configured");
                    return Ok(shared.refuse_unrun(Problem::principal_required()));
                }
                Caller::Credentials { any: false } => shared.warn_of_anonymous(),
                Caller::Principal(_) | Caller::Credentials { any: true } => {}
            }
            let intake = match intake::read(body, &parts.headers, config.max_request_body, &shared.buffered).await {
                Ok(intake) => intake,
                Err(problem) => return Ok(shared.refuse_unrun(problem)),
            };
            let Some(running) = shared.running.take(1) else {
                return Ok(shared.refuse_unrun(Problem::overloaded()));
            };
            // The token first: a tracker that is closed after this waits for the run.
            let tracked = shared.tracker.token();
            if shared.tracker.is_closed() {
                return Ok(shared.refuse_unrun(Problem::draining()));
            }
            let request = shared.claim_request(&parts, &intake.body, &caller, &key);
            let principal = caller.into_principal();
            (request, Admitted { key, principal, intake, _running: running, _tracked: tracked })
        };

        // From here on the client may go: what it has asked for is done all the same.
        claiming.begin();
        let (sent, claim) = claim(&shared.store, &request, shared.config.record_deadline).await;
        let acquired = match claim {
            Ok(Claim::Acquired(acquired)) => acquired,
            Ok(Claim::Recorded(recorded)) => {
                let mut response = replay(&recorded.response);
                shared.publish_expiry(recorded.expires_in, response.headers_mut());
                return Ok(response);
            }
            Ok(other) => return Ok(shared.refuse_unrun(refused(&other, &request))),
            Err(error) => return Ok(shared.refuse_unrun(shared.claim_failed(&error, request))),
        };
        let held = Held { lease: request.lease, attempt: acquired.attempt, since: sent + acquired.queued };
        let answered = run::start(Arc::clone(&shared), inner, parts, admitted, held);
        claiming.end();
        // A run that ends without an answer was aborted: nobody knows what it did.
        answered.await.unwrap_or_else(|_| Ok(shared.refuse(Problem::handler_panicked())))
    }
}

/// What a run is of, and what it holds of the layer's bounds until it is over.
pub(crate) struct Admitted {
    key: IdempotencyKey,
    /// Taken when the run begins.
    principal: Option<String>,
    pub(crate) intake: Intake,
    _running: Share,
    _tracked: TaskTrackerToken,
}

/// Why a key that is somebody else's is not run.
fn refused(claim: &Claim, request: &ClaimRequest) -> Problem {
    match claim {
        Claim::InFlight { age } => Problem::in_flight(*age),
        Claim::Unavailable(tombstone) => Problem::response_unavailable(tombstone.status),
        Claim::Held => Problem::outcome_unknown(request.lease.record.to_string()),
        Claim::Reused => Problem::key_reused(),
        Claim::CallerChanged => Problem::caller_changed(),
        Claim::Acquired(_) | Claim::Recorded(_) => unreachable!("these are answered otherwise"),
    }
}

/// Claims, and says when the claim that was answered had been sent.
///
/// A claim without an answer may have been made. It is sent again under the same id, so that the client is not kept
/// out by a lease of its own; but not for long, since the client can do the same.
async fn claim(store: &impl Store, request: &ClaimRequest, patience: Duration) -> (Instant, Result<Claim, StoreError>) {
    let first_sent = Instant::now();
    let mut sent = first_sent;
    loop {
        let mut claim = pin!(store.claim(request));
        // Stores in memory answer at once, and need no timer.
        let claim = match poll!(claim.as_mut()) {
            Poll::Ready(claim) => claim,
            Poll::Pending => match Box::pin(timeout_at(first_sent + patience, claim)).await {
                Ok(claim) => claim,
                Err(_) => return (sent, Err(StoreError::new(StoreErrorKind::Unavailable))),
            },
        };
        match claim {
            Err(error) if error.kind() == StoreErrorKind::Unavailable && first_sent.elapsed() < RESEND_CLAIMS_FOR => {
                tracing::debug!(error = error.cause(), "a claim got no answer and is sent again");
                Box::pin(sleep(RESEND_PAUSE)).await;
                sent = Instant::now();
            }
            claim => return (sent, claim),
        }
    }
}

const RESEND_CLAIMS_FOR: Duration = Duration::from_millis(250);
const RESEND_PAUSE: Duration = Duration::from_millis(20);

impl<St: Store> Shared<St> {
    fn claim_request(&self, parts: &Parts, body: &Bytes, caller: &Caller, key: &IdempotencyKey) -> ClaimRequest {
        let config = &self.config;
        ClaimRequest {
            lease: Lease {
                record: record_id(&config.secret, &config.scope, caller.principal(), key.as_str()),
                id: LeaseId::random(),
                duration: config.lease,
            },
            fingerprint: config.fingerprint.of(&Fingerprinted::new(parts, body, &config.secret)),
            caller: match caller {
                Caller::Credentials { any: true } => {
                    caller_fingerprint(&config.secret, &config.credentials, &parts.headers)
                }
                _ => self.no_credentials,
            },
            retention: config.retention,
            policy: config.lapse_policy(),
        }
    }

    /// What a run hands to the calls it makes.
    pub(crate) fn propagation(&self, admitted: &mut Admitted, attempt: u32) -> Propagation {
        let config = &self.config;
        let mut propagation = Propagation::builder(Arc::clone(&config.scope), admitted.key.clone())
            // The first is 1, in every store.
            .attempt(NonZeroU32::new(attempt).unwrap_or(NonZeroU32::MIN));
        if let Some(principal) = admitted.principal.take() {
            propagation = propagation.principal(principal);
        }
        if let Some(secret) = &config.derivation_secret {
            propagation = propagation.secret(secret.clone());
        }
        propagation.build()
    }

    /// What a claim that got no answer means to its client; it is taken back where it may have been made.
    fn claim_failed(&self, error: &StoreError, request: ClaimRequest) -> Problem {
        tracing::error!(scope = %self.config.scope, error = error.cause(), kind = ?error.kind(), "a claim failed");
        match error.kind() {
            StoreErrorKind::Corrupt | StoreErrorKind::Newer => Problem::record_unreadable(),
            _ => {
                undo::spawn(self.store.clone(), request, &self.undoing);
                Problem::store_unavailable()
            }
        }
    }

    fn warn_of_anonymous(&self) {
        if !self.config.anonymous && !self.warned_of_anonymous.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                scope = %self.config.scope,
                "a keyed request carries no credentials and has no principal, so that all such callers share their \
                 keys; name one, or say `.anonymous(true)` if that is meant"
            );
        }
    }
}
