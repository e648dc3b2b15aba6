//! Each attempt of a client is told, because this middleware is added after the one that retries.

use async_trait::async_trait;
use client_retry::TransportFailure;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::timeline::shown;

/// Tells of every request and what became of it.
pub(crate) struct Narrator<F>(pub(crate) F);

#[async_trait]
impl<F> Middleware for Narrator<F>
where
    F: Fn(&str) + Send + Sync + 'static,
{
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let Self(say) = self;
        let what = format!("{} {}", request.method(), request.url().path());
        say(&format!("→ {what}, {}", shown(request.headers().get("idempotency-key"))));
        let answered = next.run(request, extensions).await;
        match &answered {
            Ok(response) if response.headers().contains_key("idempotent-replayed") => {
                say(&format!("← {}, replayed", response.status()));
            }
            Ok(response) => match response.headers().get("idempotency-problem") {
                Some(problem) => say(&format!("← {} ({})", response.status(), problem.to_str().unwrap_or("?"))),
                None => say(&format!("← {}", response.status())),
            },
            Err(Error::Reqwest(error)) => say(&format!("← nothing: {}", TransportFailure::of(error))),
            Err(error) => say(&format!("← nothing: {error}")),
        }
        answered
    }
}
