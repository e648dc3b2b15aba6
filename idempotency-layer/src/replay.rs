//! Which headers of an answer belong to the operation, and which only to the connection or the moment.
//!
//! The first client gets all of them. The record keeps those that a retry must see again; the others are set anew by
//! whatever sends the replay, or would do harm there: a second session cookie, another request's id.

use bytes::Bytes;
use http::header::{
    AGE, CONNECTION, DATE, HeaderName, PROXY_AUTHENTICATE, SERVER, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body;
use idempotency_shared::IDEMPOTENT_REPLAYED;

use crate::body::ResponseBody;
use crate::store::StoredResponse;

/// What the record keeps of a response.
pub(crate) fn stored(parts: &Parts, body: Bytes, trailers: Option<HeaderMap>) -> StoredResponse {
    StoredResponse { status: parts.status, headers: kept(&parts.headers), body, trailers }
}

/// The response that a retry gets.
pub(crate) fn replay<B: Body>(stored: &StoredResponse) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::whole(stored.body.clone(), stored.trailers.clone()));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers.clone();
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len() + 1);
    for (name, value) in headers {
        if !(is_never_stored(name) || is_nominated(headers, name)) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Hop-by-hop by RFC 9110, section 7.6.1, or bound to one moment, one connection or one client.
fn is_never_stored(name: &HeaderName) -> bool {
    NEVER_STORED.contains(name)
        || NEVER_STORED_NAMES.contains(&name.as_str())
        || NEVER_STORED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
}

/// Whether `Connection` names this field.
fn is_nominated(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let mut nominated = value.as_bytes().split(|byte| *byte == b',');
        nominated.any(|nominated| nominated.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    })
}

const NEVER_STORED: [HeaderName; 11] = [
    AGE,
    CONNECTION,
    DATE,
    PROXY_AUTHENTICATE,
    SERVER,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    WWW_AUTHENTICATE,
];

const NEVER_STORED_NAMES: [&str; 14] = [
    "alt-svc",
    "keep-alive",
    "proxy-connection",
    "traceparent",
    "tracestate",
    "traceresponse",
    "baggage",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-trace-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "idempotent-replayed",
];

const NEVER_STORED_PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit-", "x-b3-"];

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty};

    use super::*;

    fn stored_with(headers: &[(&'static str, &'static [u8])]) -> StoredResponse {
        let mut response = Response::new(());
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).expect("a header value");
            response.headers_mut().append(*name, value);
        }
        *response.status_mut() = http::StatusCode::ACCEPTED;
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("1"))]);
        stored(&response.into_parts().0, Bytes::from_static(b"\x00\xff"), Some(trailers))
    }

    /// Fails when `kept` inserts instead of appending, `stored` or `replay` leaves out the trailers, or `replay` sets no
    /// status or passes the body through a string.
    #[tokio::test]
    async fn a_replay_is_byte_for_byte_the_same() {
        let stored = stored_with(&[("link", b"</a>"), ("x-raw", b"\xff\xfe"), ("link", b"</b>"), ("x-empty", b"")]);
        let response = replay::<Empty<Bytes>>(&stored);
        assert_eq!(response.status(), 202);
        let links: Vec<_> = response.headers().get_all("link").iter().collect();
        assert_eq!(links, ["</a>", "</b>"]);
        assert_eq!(response.headers()["x-raw"].as_bytes(), b"\xff\xfe");
        assert_eq!(response.headers()["x-empty"], "");
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        let body = response.into_body().collect().await.expect("infallible");
        assert_eq!(body.trailers().expect("trailers")["etag"], "1");
        assert_eq!(body.to_bytes(), &b"\x00\xff"[..]);
    }

    /// Fails when any entry is dropped from the three lists, and when `Connection` is not asked or compared with its case.
    #[test]
    fn what_belongs_to_the_connection_or_the_moment_is_not_stored() {
        // Each by its name, not from the lists: what is dropped there would be missed here too.
        let never = "age alt-svc baggage date idempotent-replayed keep-alive proxy-authenticate proxy-connection \
                     ratelimit ratelimit-policy request-id server set-cookie te traceparent traceresponse tracestate \
                     trailer transfer-encoding upgrade www-authenticate x-amzn-trace-id x-b3-traceid \
                     x-cloud-trace-context x-correlation-id x-ratelimit-limit x-request-id x-trace-id";
        let mut headers: Vec<(&'static str, &'static [u8])> = vec![("x-hop", b"1"), ("connection", b"close, X-Hop")];
        headers.extend(never.split_ascii_whitespace().map(|name| (name, &b"1"[..])));
        headers.push(("content-type", b"text/plain"));
        let names: Vec<_> = stored_with(&headers).headers.keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names, ["content-type"]);
    }
}
