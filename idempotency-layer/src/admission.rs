//! Before a byte of the body is read: does this request pass, is it refused, or is it keyed?
//!
//! 1. A method that is not keyed passes. So does gRPC, whose failures are a 200 with a trailer, and a request whose key
//!    a layer of the same store and scope outside has claimed already.
//! 2. A malformed key is refused with its own problem; a missing one too, unless keys are optional.
//! 3. Everything else is keyed. Whose it is, and whether that can be told, is asked [afterwards](crate::caller).
//!
//! What passes is neither buffered nor copied, and costs no allocation.

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Method};
use idempotency_shared::{IdempotencyKey, Problem};

use crate::config::Config;
use crate::operation::Operation;
use crate::store::StoreId;

/// What is to be done with a request.
pub(crate) enum Admission {
    Pass,
    Refuse(Problem),
    Run(IdempotencyKey),
}

pub(crate) fn admit(
    config: &Config,
    store: StoreId,
    method: &Method,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Admission {
    if !config.methods.contains(method) || is_grpc(headers) {
        return Admission::Pass;
    }
    if extensions.get::<Operation>().is_some_and(|operation| operation.holds(store, &config.scope)) {
        return Admission::Pass;
    }
    match IdempotencyKey::from_headers(headers, &config.header, config.key_limit) {
        Ok(Some(key)) => Admission::Run(key),
        Ok(None) if config.require_key => Admission::Refuse(Problem::key_missing()),
        Ok(None) => Admission::Pass,
        Err(error) => Admission::Refuse(error.problem()),
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    content_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
}

const GRPC: &[u8] = b"application/grpc";

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn admitted(config: &Config, request: http::request::Builder) -> Admission {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        admit(config, StoreId::random(), &parts.method, &parts.headers, &parts.extensions)
    }

    /// Fails when `admit` does not ask for the method, the content type or whether a key is required, and when `is_grpc`
    /// compares with its case.
    #[test]
    fn what_is_not_keyed_passes() {
        let config = Config::default();
        for method in ["GET", "HEAD", "PUT", "DELETE", "PATCH"] {
            let request = Request::builder().method(method);
            assert!(matches!(admitted(&config, request), Admission::Pass), "{method}");
        }
        for grpc in ["application/grpc", "application/grpc+proto", "Application/gRPC-Web"] {
            let request = Request::post("/").header("content-type", grpc);
            assert!(matches!(admitted(&config, request), Admission::Pass), "{grpc}");
        }
        let optional = Config { require_key: false, ..Config::default() };
        assert!(matches!(admitted(&optional, Request::post("/")), Admission::Pass));
    }

    /// Fails when `admit` lets a malformed key pass where keys are optional, or a missing one where they are not.
    #[test]
    fn a_malformed_key_is_refused_even_where_keys_are_optional() {
        for require_key in [true, false] {
            let config = Config { require_key, ..Config::default() };
            let request = Request::post("/").header("idempotency-key", "a,b");
            assert!(matches!(admitted(&config, request), Admission::Refuse(_)));
        }
        assert!(matches!(admitted(&Config::default(), Request::post("/")), Admission::Refuse(_)));
    }
}
