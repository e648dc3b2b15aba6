//! An axum handler takes the [`Propagation`] of its run as an argument.
//!
//! - It is the one that stands in the request's extensions, where the layer that runs the request puts
//!   it.
//! - A request that has none is answered with 500 and a text that says which layer is missing:
//!   a handler that derives keys must not run where there is nothing to derive them from.
//! - An `Option<Propagation>` is `None` there instead.
//!
//! ```
//! use axum_core::extract::FromRequestParts;
//! use http::Request;
//! use idempotency_shared::{IdempotencyKey, Propagation};
//!
//! # futures_util::FutureExt::now_or_never(async {
//! let (mut parts, ()) = Request::new(()).into_parts();
//! assert!(Propagation::from_request_parts(&mut parts, &()).await.is_err());
//!
//! parts.extensions.insert(Propagation::builder("order:create", IdempotencyKey::random()).build());
//! let run = Propagation::from_request_parts(&mut parts, &()).await.unwrap();
//! assert_eq!(run.scope(), "order:create");
//! # }).unwrap();
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display, Formatter};

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::Propagation;

impl<S: Send + Sync> FromRequestParts<S> for Propagation {
    type Rejection = MissingPropagation;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, MissingPropagation> {
        parts.extensions.get::<Self>().cloned().ok_or(MissingPropagation(()))
    }
}

/// `None` for a request that came without a key.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Propagation {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// The request has no [`Propagation`]: the route has no `IdempotencyLayer`, or lets requests without a
/// key pass.
#[derive(Debug)]
pub struct MissingPropagation(());

impl Display for MissingPropagation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the request has no key to derive others from: put the IdempotencyLayer around the route and its method \
             among the layer's, or extract an Option<Propagation>",
        )
    }
}

impl Error for MissingPropagation {}

impl IntoResponse for MissingPropagation {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::Request;

    use super::*;
    use crate::IdempotencyKey;

    /// Fails when the rejection is another status.
    #[test]
    fn request_without_one_is_the_programs_mistake_unless_one_is_optional() {
        let (mut parts, ()) = Request::new(()).into_parts();
        let missing = <Propagation as FromRequestParts<()>>::from_request_parts(&mut parts, &()).now_or_never();
        assert_eq!(missing.unwrap().unwrap_err().into_response().status(), StatusCode::INTERNAL_SERVER_ERROR);
        let optional = <Propagation as OptionalFromRequestParts<()>>::from_request_parts(&mut parts, &());
        assert!(optional.now_or_never().unwrap().unwrap().is_none());
    }

    /// Fails when the extractor describes a run of its own.
    #[test]
    fn extracted_one_belongs_to_the_run() {
        let run = Propagation::builder("order:create", IdempotencyKey::random()).build();
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.extensions.insert(run.clone());
        let extracted = <Propagation as FromRequestParts<()>>::from_request_parts(&mut parts, &()).now_or_never();
        assert!(extracted.unwrap().unwrap().operation("charge").key().is_ok());
        assert!(run.operation("charge").key().is_err());
    }
}
