//! A problem becomes a response: RFC 9457 in its body, its code in a header, itself in the extensions.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER};
use http::{HeaderValue, Response};
use http_body::Body;
use idempotency_shared::{IDEMPOTENCY_PROBLEM, Problem, ProblemCode};

use crate::body::ResponseBody;

/// The response for a problem. The [`Problem`] itself is in its extensions, for a service outside that renders another
/// format or counts.
pub(crate) fn refusal<B: Body>(problem: Problem, documentation: Option<&HeaderValue>) -> Response<ResponseBody<B>> {
    respond(problem, documentation).map(|body| ResponseBody::whole(body, None))
}

pub(crate) fn respond(problem: Problem, documentation: Option<&HeaderValue>) -> Response<Bytes> {
    let mut response = Response::new(problem.to_json());
    *response.status_mut() = problem.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(IDEMPOTENCY_PROBLEM, HeaderValue::from_static(problem.code().as_str()));
    if let Some(seconds) = problem.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let (Some(link), true) = (documentation, is_about_the_key(problem.code())) {
        headers.insert(LINK, link.clone());
    }
    response.extensions_mut().insert(problem);
    response
}

/// Whether the client has to learn about keys to do better.
fn is_about_the_key(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::KeyMissing | ProblemCode::KeyInvalid | ProblemCode::KeyTooLong | ProblemCode::KeyRepeated
    )
}
