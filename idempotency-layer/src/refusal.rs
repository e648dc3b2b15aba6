//! A problem becomes a response: RFC 9457 in its body, its code in a header, itself in the extensions.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LINK, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderValue, Response};
use http_body::Body;
use idempotency_shared::{IDEMPOTENCY_PROBLEM, Problem, ProblemCode};

use crate::body::ResponseBody;
use crate::collect::Collected;

/// Gives a problem's response another form.
pub(crate) type Render = Arc<dyn Fn(&Problem, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// The response for a problem. The [`Problem`] itself is in its extensions, for a service outside that counts, say.
pub(crate) fn refusal<B: Body>(
    problem: Problem,
    documentation: Option<&HeaderValue>,
    render: Option<&Render>,
) -> Response<ResponseBody<B>> {
    let mut response = respond(problem.clone());
    if let Some(link) = documentation.filter(|_| is_about_the_key(problem.code())) {
        response.headers_mut().insert(LINK, link.clone());
    }
    let response = match render {
        None => response,
        Some(render) => {
            let mut rendered = render(&problem, response);
            rendered.extensions_mut().insert(problem);
            rendered
        }
    };
    response.map(|body| ResponseBody::whole(body, None))
}

/// In the extensions of a problem's response that a handler passes on from the layer: its layer has yet to render it.
///
/// Taken out by the layer that runs the handler. Those outside leave the response as it is, as they do with the refusals
/// of a layer inside, which carry none.
#[derive(Clone)]
pub(crate) struct Unrendered(pub(crate) Problem);

/// Renders what a handler answers if it is a problem of the layer's, and leaves everything else as it is.
///
/// What the handler and the services inside have added is kept, but for the fields that speak of the body as it was.
pub(crate) fn render_answered<B: Body>(parts: &mut Parts, collected: &mut Collected<B>, render: Option<&Render>) {
    let (Some(Unrendered(problem)), Some(render)) = (parts.extensions.remove(), render) else { return };
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.remove(CONTENT_ENCODING);
    // The hook may make a response of its own, and what the outcome is must outlast that.
    let mut extensions = parts.extensions.clone();
    let (rendered, data) = render(&problem, Response::from_parts(parts.clone(), problem.to_json())).into_parts();
    *parts = rendered;
    extensions.extend(std::mem::take(&mut parts.extensions));
    parts.extensions = extensions;
    *collected = Collected::Whole { data, trailers: None };
}

pub(crate) fn respond(problem: Problem) -> Response<Bytes> {
    let mut response = Response::new(problem.to_json());
    *response.status_mut() = problem.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(IDEMPOTENCY_PROBLEM, HeaderValue::from_static(problem.code().as_str()));
    if let Some(seconds) = problem.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
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
