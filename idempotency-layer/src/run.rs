//! A run takes one key from the call of its handler to the record and the client's answer.
//!
//! It is a task of its own. A client that disconnects does not end it; it is awaited by the layer's tracker, and its
//! place in the layer's bounds is free when it is over. What it does after the handler, in this order:
//!
//! 1. The response's body is read, as far as [`collect`](crate::collect) goes. Until then the run's propagation is the
//!    current one of the task; what is read later, by the client's connection, has none.
//! 2. The slot of the transaction is closed. One that is still out is rolled back.
//! 3. The policy says what becomes of the key.
//! 4. In a transaction, a response below 400 is recorded and committed. Everything else is written beside it, after a
//!    rollback.
//! 5. The client is answered. Only what the store has confirmed is answered as success.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::{FutureExt, poll};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use idempotency_shared::Problem;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tower_service::Service;
use tracing::Instrument;

use crate::body::{RequestBody, ResponseBody};
use crate::collect::{Collected, collect, uncollectable};
use crate::heartbeat::Heartbeat;
use crate::operation::Operation;
use crate::policy::RunFacts;
use crate::service::{Admitted, Shared};
use crate::settle::{Step, settle};
use crate::store::{Commit, Lease, Store, StoreErrorKind, Write};
use crate::transaction::{Closed, Open};
use crate::verdict::{Ran, Verdict};

/// What a run answers.
pub(crate) type Answer<RB, E> = Result<Response<ResponseBody<RB>>, E>;

/// A run whose key is claimed.
///
/// It is moved into its task, and with it all that it waits for: what is large and seldom is in a box.
pub(crate) struct Run<St: Store, RB: Body, E> {
    shared: Arc<Shared<St>>,
    heartbeat: Heartbeat<St>,
    /// From when on the lease counts.
    since: Instant,
    unrouted: bool,
    /// Its receiver is gone when the client is.
    answer: Option<oneshot::Sender<Answer<RB, E>>>,
    /// Held to the end: a run that is not over counts against the layer's bounds.
    _admitted: Admitted,
}

/// Leaves the handler to a task of its own. The lease counts from `since`.
pub(crate) fn start<St, Svc, B, RB>(
    shared: Arc<Shared<St>>,
    inner: Svc,
    mut parts: Parts,
    mut admitted: Admitted,
    held: Held,
) -> oneshot::Receiver<Answer<RB, Svc::Error>>
where
    St: Store,
    Svc: Service<Request<RequestBody<B>>, Response = Response<RB>> + Send + 'static,
    Svc::Future: Send + 'static,
    Svc::Error: Send + 'static,
    B: Body + Send + 'static,
    RB: Body + Send + 'static,
    RB::Data: Send,
    RB::Error: Send,
{
    let Held { lease, attempt, since } = held;
    let propagation = shared.propagation(&mut admitted, attempt);
    let outer = parts.extensions.remove::<Operation>();
    let operation = Operation::new(propagation.clone(), lease, shared.store.identity(), outer);
    tracing::debug!(operation = ?operation, "a run begins");
    let cap = shared.config.max_response_body;
    let (answer, answered) = oneshot::channel();
    let unrouted = is_unrouted(&parts);
    let method = parts.method.clone();
    let heartbeat = shared.heartbeats.begin(operation.clone(), since);
    parts.extensions.insert(operation);
    // In the place of that of a layer outside, whose key is not this one's.
    parts.extensions.insert(propagation.clone());
    let body = RequestBody::read(std::mem::take(&mut admitted.intake.body), admitted.intake.trailers.take());
    let request = Request::from_parts(parts, body);
    let run = Run { shared, heartbeat, since, unrouted, answer: Some(answer), _admitted: admitted };
    // In a box: a task is moved whole, more than once, before it runs.
    let handler = propagation.around(guarded(inner, request, method, cap));
    // Before the task begins, which takes every clone but the operation's for one that can still give keys away.
    drop(propagation);
    tokio::spawn(Box::pin(run.drive(handler)).in_current_span());
    answered
}

/// A lease as the store gave it.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
    pub(crate) since: Instant,
}

impl<St, RB, E> Run<St, RB, E>
where
    St: Store,
    RB: Body + Send + 'static,
    RB::Data: Send,
    RB::Error: Send,
    E: Send + 'static,
{
    fn operation(&self) -> &Operation {
        self.heartbeat.operation()
    }

    /// Sees the handler through to the record and the answer.
    #[expect(clippy::manual_async_fn, reason = "the future of an `async fn` has room for each argument twice")]
    fn drive<H>(mut self, handler: H) -> impl Future<Output = ()> + Send
    where
        H: Future<Output = Ran<RB, E>> + Send,
    {
        async move {
            if self.is_late() {
                return self.give_up().await;
            }
            // With the handler's future goes what of the propagation was for it: what is left by then is somebody else's.
            let ran = handler.await;
            let (mut verdict, closed) = self.judge(ran);
            if let Some(open) = self.transaction(closed, &mut verdict) {
                return self.end_transaction(open, verdict).await;
            }
            self.settle(&mut verdict).await;
        }
    }

    /// Writes the record by itself, and answers.
    async fn settle(&mut self, verdict: &mut Verdict<RB, E>) {
        let mut settled = pin!(settle(&self.shared.store, self.heartbeat.operation().lease(), &verdict.step));
        let written = match poll!(settled.as_mut()) {
            Poll::Ready(written) => Ok(written),
            Poll::Pending => Box::pin(timeout(self.shared.config.record_deadline, settled.as_mut())).await,
        };
        let is_late = written.is_err();
        let response = verdict.answer.take().map(|answer| self.answer_to(&verdict.step, written, answer));
        send(self.answer.take(), response);
        if is_late {
            tracing::error!(operation = ?self.operation(), "answered before the record was confirmed; going on to write it");
            let written = settled.await;
            tracing::info!(operation = ?self.operation(), written = ?written, "a late record was decided");
        }
        // The heartbeat goes with `self`: a run whose record is not written yet still keeps others out.
    }

    /// Whether the lease has passed before the handler was called, as after a pause of the process.
    fn is_late(&self) -> bool {
        Instant::now() >= self.since + self.operation().lease().duration
    }

    /// Ends a run that has not begun: another one may have.
    fn give_up(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        tracing::warn!(operation = ?self.operation(), "a lease had passed before its run began; it is not begun");
        Box::pin(async move {
            send(self.answer.take(), Some(Ok(self.shared.refuse_unrun(Problem::lease_lost()))));
            // It did nothing. Where it is fenced somebody else has the key already.
            let step = Step::unrun(self.operation().attempt());
            let written = settle(&self.shared.store, self.operation().lease(), &step).await;
            tracing::debug!(operation = ?self.operation(), written = ?written, "a key was given back");
        })
    }

    /// What the policy says of what the handler made of its run, and what is in the slot of its transaction.
    fn judge(&self, ran: Ran<RB, E>) -> (Verdict<RB, E>, Closed) {
        let closed = self.operation().slot().close();
        let facts = RunFacts {
            attempt: self.operation().attempt(),
            gave_transaction: matches!(closed, Closed::Transaction(_)),
            may_have_given_key: self.operation().may_have_given_key(),
            unrouted: self.unrouted,
            unknown: self.shared.config.unknown,
        };
        (Verdict::of(ran, &facts, &self.shared), closed)
    }

    /// The transaction that is to be ended, if there is one; the verdict is mended where the handler lost or got none.
    fn transaction(&self, closed: Closed, verdict: &mut Verdict<RB, E>) -> Option<Box<dyn Open>> {
        match closed {
            Closed::Unused => None,
            // Whatever the handler made of the error: nothing was written, and a retry may get its transaction. Unless it
            // says for itself what its answer means, as one does that has had an effect elsewhere.
            Closed::Failed(problem) => {
                if verdict.is_server_error() && !verdict.is_declared {
                    *verdict = Verdict::refused(&self.shared, problem);
                }
                None
            }
            Closed::Transaction(open) => {
                if !open.is_back() {
                    tracing::error!(operation = ?self.operation(), "the handler has not given its transaction back");
                    // The old verdict is dropped here. The transaction may be inside the body that it holds, and whoever
                    // waited for it would wait for a client that is not served.
                    *verdict = Verdict::refused(&self.shared, Problem::transaction_lost());
                }
                Some(open)
            }
        }
    }

    /// The answer to the client, once it is known what became of the write.
    fn answer_to<T>(&self, step: &Step, written: Result<Option<Write>, T>, answer: Answer<RB, E>) -> Answer<RB, E> {
        let written = written.ok();
        tracing::debug!(operation = ?self.operation(), written = ?written, "a run has ended");
        if matches!(step, Step::Hold) {
            let record = self.operation().record();
            tracing::warn!(operation = ?self.operation(), %record, "the outcome is unknown; the key is held for an operator");
        }
        let is_lost = match written {
            Some(Some(Write::Done)) => false,
            Some(Some(Write::Fenced)) => true,
            Some(None) | None => self.operation().is_lost(),
        };
        // A failure is the handler's own word about its run and stays true; a result of a lost run is not the key's.
        let is_result = matches!(step, Step::Complete(_));
        match answer {
            _ if is_lost && is_result => Ok(self.shared.refuse(Problem::lease_lost())),
            Ok(response) if is_result => Ok(self.recorded(response)),
            answer => answer,
        }
    }

    /// A response whose record is written as it is sent.
    fn recorded(&self, mut response: Response<ResponseBody<RB>>) -> Response<ResponseBody<RB>> {
        self.shared.publish_expiry(self.shared.config.retention, response.headers_mut());
        response
    }

    /// In a box, so that runs without a transaction need no room for it.
    fn end_transaction(self, open: Box<dyn Open>, verdict: Verdict<RB, E>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if verdict.commits() { Box::pin(self.commit(open, verdict)) } else { Box::pin(self.roll_back(open, verdict)) }
    }

    /// Rolls back, and then writes the record by itself. It goes on when the rollback takes too long: the client waits, and
    /// the record does not depend on it.
    async fn roll_back(mut self, open: Box<dyn Open>, mut verdict: Verdict<RB, E>) {
        let patience = self.shared.config.record_deadline;
        if timeout(patience, open.roll_back(self.operation().lease())).await.is_err() {
            tracing::error!(operation = ?self.operation(), "a transaction has not been rolled back in time");
        }
        self.settle(&mut verdict).await;
    }

    /// Records and commits in the handler's transaction.
    async fn commit(mut self, open: Box<dyn Open>, mut verdict: Verdict<RB, E>) {
        // A renewal that comes between would conflict with the very row that is about to be written.
        self.heartbeat.stop().await;
        let (shared, operation) = (&self.shared, self.heartbeat.operation());
        let lease = operation.lease();
        let Step::Complete(completion) = &verdict.step else {
            unreachable!("only a completion commits");
        };
        let patience = shared.config.record_deadline;
        let deadline = Instant::now() + patience;
        let committed = match timeout_at(deadline, open.complete(lease, completion)).await {
            Ok(Ok(commit)) => Some(commit),
            Ok(Err(error)) => {
                tracing::warn!(error = error.cause(), kind = ?error.kind(), "a commit got no answer");
                confirm(&*open, lease, deadline).await
            }
            Err(_) => confirm(&*open, lease, deadline + patience).await,
        };
        tracing::debug!(operation = ?operation, commit = ?committed, "a run's transaction has ended");
        let problem = match committed {
            Some(Commit::Committed) => None,
            Some(Commit::Fenced) => Some(Problem::lease_lost()),
            Some(Commit::Lost) => {
                tracing::error!(operation = ?operation, "the transaction was ended by other hands than the layer's");
                Some(Problem::transaction_lost())
            }
            Some(Commit::Aborted) => {
                tracing::warn!(operation = ?operation, "the transaction took too long, or met a conflict");
                Some(Problem::transaction_failed())
            }
            None => Some(Problem::store_unavailable()),
        };
        let response = match problem {
            None => verdict.answer.take().map(|answer| answer.map(|response| self.recorded(response))),
            Some(problem) => Some(Ok(shared.refuse(problem))),
        };
        // Nothing of it is in the database, so the key is free at once, or as soon as the store takes it.
        if matches!(committed, Some(Commit::Lost | Commit::Aborted)) {
            let mut released = pin!(settle(&shared.store, lease, &Step::Release));
            if timeout(patience, released.as_mut()).await.is_err() {
                tracing::warn!(operation = ?operation, "answered before a key was freed; going on to free it");
                send(self.answer.take(), response);
                released.await;
                return;
            }
        }
        send(self.answer.take(), response);
    }
}

/// Calls a handler and reads its response. A handler that panics is dropped in here with all it held, so nothing half done
/// is seen again.
///
/// It is called in the run's task, not before: a call that keeps its thread would keep the task that starts the heartbeats,
/// which the runtime has put next on that thread until another one is.
fn guarded<Svc, Req, RB>(
    mut inner: Svc,
    request: Req,
    method: Method,
    cap: usize,
) -> impl Future<Output = Ran<RB, Svc::Error>>
where
    Svc: Service<Req, Response = Response<RB>>,
    RB: Body,
{
    let collected = async move {
        let call = inner.call(request);
        // It is called once, and may hold what others wait for.
        drop(inner);
        let (parts, body) = match call.await {
            Ok(response) => response.into_parts(),
            Err(error) => return Ran::Failed(error),
        };
        let collected = match uncollectable(&method, &parts) {
            Some(reason) => Collected::Unfinished { reason, body: ResponseBody::handler(body) },
            None => collect(body, cap).await,
        };
        Ran::Answered(parts, collected)
    };
    AssertUnwindSafe(collected).catch_unwind().map(|ran| ran.unwrap_or(Ran::Panicked))
}

/// Asks until the deadline what became of a commit. `None`: that could not be established.
async fn confirm(open: &dyn Open, lease: &Lease, deadline: Instant) -> Option<Commit> {
    let asked = async {
        loop {
            match open.confirm(lease).await {
                Ok(commit) => return Some(commit),
                Err(error) if error.kind() == StoreErrorKind::Unavailable => sleep(CONFIRM_PAUSE).await,
                Err(_) => return None,
            }
        }
    };
    timeout_at(deadline, asked).await.ok().flatten()
}

/// A request that came through an axum router to no route of it.
#[cfg(feature = "axum")]
fn is_unrouted(parts: &Parts) -> bool {
    use axum::extract::{MatchedPath, OriginalUri};
    parts.extensions.get::<OriginalUri>().is_some() && parts.extensions.get::<MatchedPath>().is_none()
}

#[cfg(not(feature = "axum"))]
fn is_unrouted(_: &Parts) -> bool {
    false
}

/// Answers, once.
fn send<RB: Body, E>(answer: Option<oneshot::Sender<Answer<RB, E>>>, response: Option<Answer<RB, E>>) {
    if let (Some(answer), Some(response)) = (answer, response)
        && answer.send(response).is_err()
    {
        tracing::debug!("the client of a run has gone; its retry gets the record");
    }
}

const CONFIRM_PAUSE: Duration = Duration::from_millis(50);
