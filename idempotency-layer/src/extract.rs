//! Axum handlers take their [`Operation`] as an argument, and answer a transaction they did not get with `?`.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use idempotency_shared::Problem;

use crate::operation::Operation;
use crate::policy::Outcome;
use crate::refusal::{Unrendered, respond};
use crate::transaction::{TransactionError, TransactionErrorKind};

impl<S: Send + Sync> FromRequestParts<S> for Operation {
    type Rejection = MissingOperation;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingOperation> {
        parts.extensions.get::<Self>().cloned().ok_or(MissingOperation(()))
    }
}

/// `None` for a request that passed the layer without a key.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Operation {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// The request has no [`Operation`]: the route has no `IdempotencyLayer`, or lets requests without a key pass.
#[derive(Debug)]
pub struct MissingOperation(());

impl std::fmt::Display for MissingOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the request has no idempotent operation: put the IdempotencyLayer around the route and its method among \
             the layer's, or extract an Option<Operation>",
        )
    }
}

impl std::error::Error for MissingOperation {}

impl IntoResponse for MissingOperation {
    fn into_response(self) -> Response {
        tracing::error!("{self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// 503 where a retry helps; 500 where the program is wrong. Rendered by the layer that runs the handler.
impl IntoResponse for TransactionError {
    fn into_response(self) -> Response {
        let problem = match self.kind() {
            TransactionErrorKind::Unavailable => Problem::transaction_failed(),
            TransactionErrorKind::LeaseLost => Problem::lease_lost(),
            TransactionErrorKind::OtherStore
            | TransactionErrorKind::SecondTransaction
            | TransactionErrorKind::RunEnded => {
                tracing::error!("{self}");
                Problem::transaction_lost()
            }
        };
        let mut response = respond(problem.clone()).map(axum::body::Body::from);
        response.extensions_mut().insert(Outcome::Free);
        response.extensions_mut().insert(Unrendered(problem));
        response
    }
}
