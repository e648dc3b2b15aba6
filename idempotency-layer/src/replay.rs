//! Which headers of an answer belong to the operation, and which only to the connection or the moment.
//!
//! The first client gets all of them. The record keeps those that a retry must see again; the others are set anew by
//! whatever sends the replay, or would do harm there: a second session cookie, another request's id.
//!
//! 1. Hop-by-hop fields (RFC 9110, section 7.6.1), and those that `Connection` names, are never kept. `trailer` is not
//!    among them: trailers are part of the answer, and over HTTP/1.1 it is what announces them.
//! 2. Then the layer's own lists decide: what it keeps [always](crate::IdempotencyLayer::always_store), and what it
//!    keeps [never](crate::IdempotencyLayer::never_store).
//! 3. Fields of one moment, one connection or one client are not kept: `date`, `age`, `server`, `set-cookie`,
//!    `www-authenticate`, `proxy-authenticate`, `alt-svc`, trace and request ids, rate limits. All others are.

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Body;
use idempotency_shared::IDEMPOTENT_REPLAYED;

use crate::body::ResponseBody;
use crate::store::StoredResponse;

/// What a layer says of single headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderRules {
    pub(crate) always: Vec<HeaderName>,
    pub(crate) never: Vec<HeaderName>,
}

impl HeaderRules {
    /// What the record keeps of a response.
    pub(crate) fn stored(&self, parts: &Parts, body: Bytes, trailers: Option<Box<HeaderMap>>) -> StoredResponse {
        StoredResponse {
            status: parts.status,
            headers: self.kept(&parts.headers),
            body,
            trailers: trailers.map(|trailers| *trailers),
        }
    }

    fn kept(&self, headers: &HeaderMap) -> HeaderMap {
        let nominates = headers.contains_key(CONNECTION);
        // Room for the names only: a map has room for fewer of them than it takes values.
        let mut kept = HeaderMap::with_capacity(headers.keys_len());
        for (name, value) in headers {
            if self.keeps(name) && !(nominates && is_nominated(headers, name)) {
                kept.append(name.clone(), value.clone());
            }
        }
        kept
    }

    fn keeps(&self, name: &HeaderName) -> bool {
        if is_hop_by_hop(name.as_str()) || self.never.contains(name) {
            return false;
        }
        self.always.contains(name) || !is_of_the_moment(name.as_str())
    }
}

/// The response that a retry gets.
pub(crate) fn replay<B: Body>(stored: &StoredResponse) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::whole(stored.body.clone(), stored.trailers.clone().map(Box::new)));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers.clone();
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

fn is_hop_by_hop(name: &str) -> bool {
    matches!(name, "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade")
}

fn is_of_the_moment(name: &str) -> bool {
    matches!(
        name,
        "age"
            | "alt-svc"
            | "baggage"
            | "date"
            | "idempotency-expires-in"
            | "idempotent-replayed"
            | "proxy-authenticate"
            | "request-id"
            | "server"
            | "set-cookie"
            | "traceparent"
            | "traceresponse"
            | "tracestate"
            | "www-authenticate"
            | "x-amzn-trace-id"
            | "x-cloud-trace-context"
            | "x-correlation-id"
            | "x-request-id"
            | "x-trace-id"
    ) || ["ratelimit", "x-ratelimit-", "x-b3-"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether `Connection` names this field.
fn is_nominated(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        let mut nominated = value.as_bytes().split(|byte| *byte == b',');
        nominated.any(|nominated| nominated.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    })
}

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
        let body = Bytes::from_static(b"\x00\xff");
        HeaderRules::default().stored(&response.into_parts().0, body, Some(Box::new(trailers)))
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

    /// Fails when `kept` sets room aside for each value: a map has room for fewer names than it takes values.
    #[test]
    fn a_response_with_as_many_headers_as_fit_is_stored() {
        let repeated: Vec<(&'static str, &'static [u8])> = vec![("link", b"</a>"); 30_000];
        assert_eq!(stored_with(&repeated).headers.len(), 30_000);
    }

    /// Fails when any entry is dropped from the lists, or `Connection` is not asked or compared with its case.
    #[test]
    fn what_belongs_to_the_connection_or_the_moment_is_not_stored() {
        // Each by its name, not from the lists: what is dropped there would be missed here too.
        let mut headers: Vec<(&'static str, &'static [u8])> = vec![("x-hop", b"1"), ("connection", b"close, X-Hop")];
        let names = "age alt-svc baggage date idempotency-expires-in idempotent-replayed keep-alive proxy-authenticate proxy-connection ratelimit \
                     ratelimit-policy request-id server set-cookie te traceparent traceresponse tracestate \
                     transfer-encoding upgrade www-authenticate x-amzn-trace-id x-b3-traceid x-cloud-trace-context \
                     x-correlation-id x-ratelimit-limit x-request-id x-trace-id";
        headers.extend(names.split(' ').map(|name| (name, &b"1"[..])));
        headers.extend([("content-type", &b"text/plain"[..]), ("trailer", b"x-sum"), ("x-own", b"1")]);
        let names: Vec<_> = stored_with(&headers).headers.keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names, ["content-type", "trailer", "x-own"]);
    }

    /// Fails when the layer's lists are not asked, or outweigh the hops.
    #[test]
    fn the_layers_own_lists_decide_but_for_hop_by_hop_fields() {
        let rules = HeaderRules {
            always: ["date", "connection", "x-both"].map(HeaderName::from_static).to_vec(),
            never: ["x-own", "x-both"].map(HeaderName::from_static).to_vec(),
        };
        let keeps = |name| rules.keeps(&HeaderName::from_static(name));
        assert!(keeps("date") && keeps("etag"));
        assert!(!keeps("connection") && !keeps("x-own") && !keeps("x-both") && !keeps("age"));
    }
}
