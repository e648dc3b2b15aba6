//! The way of a request through the provider, whatever version of HTTP brought it, and where on it a fault strikes.
//!
//! ```text
//! head ──► arrive ── unread ──► body ── uncommitted ──► claim ──► gate, work ──► commit ── committed ──► answer
//! ```
//!
//! From the claim to the commit it runs in a task of its own, which a client that goes does not stop. Whatever the moment at
//! which a fault strikes, the claim and the commit are each one step under the lock of the books.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::answer::Answer;
use super::books::{Books, Claim};
use super::fault::{Ending, Fault, Moment};
use super::received::Received;
use crate::gate::Gate;

/// What all connections share.
#[derive(Default)]
pub(super) struct Desk {
    books: Mutex<Books>,
    script: Mutex<Script>,
    work: Mutex<Work>,
    connections: AtomicUsize,
    received: watch::Sender<Vec<Received>>,
}

/// Which fault is whose.
#[derive(Default)]
pub(super) struct Script {
    /// One for each request, in the order in which they arrive.
    pub(super) next: VecDeque<Option<Fault>>,
    /// For every request after those.
    pub(super) then: Option<Fault>,
}

/// What takes time between the claim and the commit.
#[derive(Clone, Default)]
pub(super) struct Work {
    pub(super) gate: Option<Gate>,
    pub(super) takes: Duration,
}

/// One request on its way.
pub(super) struct Visit {
    desk: Arc<Desk>,
    /// Its place among the received.
    place: usize,
    method: Method,
    path: String,
    keys: Vec<Bytes>,
    fault: Option<Fault>,
}

/// How the connection is to end the visit.
pub(super) enum Reply {
    Whole(Answer),
    /// Otherwise than with a whole answer. What the provider would have said is there if it came to that.
    Broken(Ending, Option<Answer>),
}

impl Desk {
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn received(&self) -> watch::Receiver<Vec<Received>> {
        self.received.subscribe()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Counts a connection and gives its number, unless it is to be reset unheard.
    pub(super) fn accept(&self) -> Option<usize> {
        let connection = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
        self.script().take(|moment| moment == Moment::Accepted).is_none().then_some(connection)
    }

    /// Records a request and decides what goes wrong with it. To be called in the order of arrival.
    pub(super) fn arrive(self: &Arc<Self>, head: &Parts, connection: usize) -> Visit {
        let received = Received::new(head, connection);
        let (path, keys) = (head.uri.path().to_owned(), received.keys.clone());
        let fault = self.script().take(|moment| moment != Moment::Accepted);
        let mut place = 0;
        self.received.send_modify(|all| {
            place = all.len();
            all.push(received);
        });
        Visit { desk: Arc::clone(self), place, method: head.method.clone(), path, keys, fault }
    }
}

impl Script {
    /// The fault whose turn it is, if it is for such a moment; any other keeps its turn.
    fn take(&mut self, is_for: impl Fn(Moment) -> bool) -> Option<Fault> {
        let fault = self.next.front().map_or(&self.then, |next| next);
        match fault {
            Some(fault) if !is_for(fault.moment) => None,
            // A turn without a fault is a request's, so that a connection leaves it.
            None if is_for(Moment::Accepted) => None,
            _ => self.next.pop_front().unwrap_or_else(|| self.then.clone()),
        }
    }
}

impl Visit {
    /// Takes the request the whole way, or to where its fault strikes. None when its body does not come.
    pub(super) async fn serve(&self, body: impl Future<Output = Option<Bytes>>) -> Option<Reply> {
        if let Some(ending) = self.strikes(Moment::Unread) {
            return Some(self.end(ending, None).await);
        }
        let body = body.await?;
        self.note(|received| received.body = body.clone());
        if let Some(ending) = self.strikes(Moment::Uncommitted) {
            return Some(self.end(ending, None).await);
        }
        let answer = self.handled(body).await;
        Some(match self.strikes(Moment::Committed) {
            Some(ending) => self.end(ending, Some(answer)).await,
            None => Reply::Whole(answer),
        })
    }

    /// What goes wrong when the request has come so far.
    pub(super) fn strikes(&self, moment: Moment) -> Option<Ending> {
        self.fault.as_ref().filter(|fault| fault.moment == moment).map(|fault| fault.ending.clone())
    }

    /// Notes what the client is about to be told.
    pub(super) fn answers(&self, status: StatusCode) {
        self.note(|received| received.status = Some(status));
    }

    fn note(&self, note: impl FnOnce(&mut Received)) {
        self.desk.received.send_modify(|all| note(&mut all[self.place]));
    }

    /// The endings that no connection is needed for.
    async fn end(&self, ending: Ending, own: Option<Answer>) -> Reply {
        match (ending, own) {
            (Ending::Answer(other), _) => Reply::Whole(other),
            (Ending::Late(delay), Some(own)) => {
                sleep(delay).await;
                Reply::Whole(own)
            }
            (Ending::Silence, _) => pending().await,
            (ending, own) => Reply::Broken(ending, own),
        }
    }

    /// From the claim to the commit, to the end even if the client goes.
    async fn handled(&self, body: Bytes) -> Answer {
        let (desk, keys) = (Arc::clone(&self.desk), self.keys.clone());
        let is_charge = self.method == Method::POST && self.path == "/charges";
        let handling = tokio::spawn(async move {
            if !is_charge {
                desk.toil().await;
                return Answer::json(200, &json!({}));
            }
            let claimed = desk.books().claim(&keys, &body);
            match claimed {
                Claim::Charges(order) => {
                    desk.toil().await;
                    desk.books().commit(order)
                }
                Claim::Answered(answer) => answer,
            }
        });
        handling.await.expect("a handler that does not panic")
    }
}

impl Desk {
    /// What a handler does that takes time.
    async fn toil(&self) {
        let Work { gate, takes } = self.work().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        sleep(takes).await;
    }
}
