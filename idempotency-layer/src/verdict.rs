//! How a handler ended says what is written for its run and what its client gets once it is.
//!
//! The [policy](crate::policy) reads the response; this file puts the record together, and decides what a body that was
//! not read to its end is worth: a tombstone where a result was to be recorded, an unknown outcome where it broke off.

use std::sync::Arc;

use http::{Response, response};
use http_body::Body;
use idempotency_shared::Problem;

use crate::body::ResponseBody;
use crate::collect::Collected;
use crate::policy::{Outcome, RunFacts, Settlement, outcome, settlement};
use crate::refusal::render_answered;
use crate::run::Answer;
use crate::service::Shared;
use crate::settle::Step;
use crate::store::{Completion, Store, Tombstone};

/// How a handler ended.
pub(crate) enum Ran<RB: Body, E> {
    Answered(response::Parts, Collected<RB>),
    Failed(E),
    Panicked,
}

/// What is to be written for a run, and what its client gets once it is.
pub(crate) struct Verdict<RB: Body, E> {
    pub(crate) step: Step,
    /// Taken when the client is answered.
    pub(crate) answer: Option<Answer<RB, E>>,
    is_success: bool,
    /// Whether the handler has said which [`Outcome`] it is.
    pub(crate) is_declared: bool,
}

impl<RB: Body, E> Verdict<RB, E> {
    /// What the policy says of how a handler ended.
    pub(crate) fn of<St: Store>(ran: Ran<RB, E>, facts: &RunFacts, shared: &Shared<St>) -> Self {
        let (parts, collected) = match ran {
            Ran::Answered(mut parts, mut collected) => {
                render_answered(&mut parts, &mut collected, shared.config.render.as_ref());
                (parts, collected)
            }
            Ran::Failed(error) => {
                let step = Step::without_response(settlement(Outcome::Unknown, facts));
                return Self { step, answer: Some(Err(error)), is_success: false, is_declared: false };
            }
            Ran::Panicked => {
                tracing::error!("a keyed handler panicked; its outcome is unknown");
                let step = Step::without_response(settlement(Outcome::Unknown, facts));
                return Self { step, ..Self::refused(shared, Problem::handler_panicked()) };
            }
        };
        let declared = parts.extensions.get::<Outcome>().copied();
        let outcome = declared.unwrap_or_else(|| outcome(parts.status, facts.unrouted));
        let settlement = settlement(outcome, facts);
        let is_success = parts.status.is_success() || parts.status.is_redirection() || parts.status.is_informational();
        let tombstone = |reason| Completion::Tombstone(Tombstone { status: parts.status, reason });
        let (settlement, completion, body) = match collected {
            Collected::Whole { data, trailers } => {
                let body = ResponseBody::whole(data.clone(), trailers.clone());
                // Only what is recorded is copied.
                let completion = (settlement == Settlement::Record)
                    .then(|| Completion::Response(Arc::new(shared.config.header_rules.stored(&parts, data, trailers))));
                (settlement, completion, body)
            }
            Collected::Unfinished { reason, body } => (settlement, Some(tombstone(reason)), body),
            // A result that nobody has seen whole is no result.
            Collected::Failed { body } if settlement == Settlement::Record => {
                (crate::policy::settlement(Outcome::Unknown, facts), None, body)
            }
            Collected::Failed { body } => (settlement, None, body),
        };
        let step = match (settlement, completion) {
            (Settlement::Record, Some(completion)) => Step::Complete(completion),
            (settlement, _) => Step::without_response(settlement),
        };
        let is_declared = declared.is_some();
        Self { step, answer: Some(Ok(Response::from_parts(parts, body))), is_success, is_declared }
    }

    /// A run that did nothing and answers with a problem: its key is free.
    pub(crate) fn refused<St: Store>(shared: &Shared<St>, problem: Problem) -> Self {
        let answer = Some(Ok(shared.refuse(problem)));
        Self { step: Step::Release, answer, is_success: false, is_declared: false }
    }

    pub(crate) fn is_server_error(&self) -> bool {
        matches!(&self.answer, Some(Ok(response)) if response.status().is_server_error())
    }

    /// Whether it is written in the handler's transaction, where there is one.
    pub(crate) fn commits(&self) -> bool {
        self.is_success && matches!(self.step, Step::Complete(_))
    }
}
