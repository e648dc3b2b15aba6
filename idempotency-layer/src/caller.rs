//! Whose request it is: by a principal that the service names, or else by the credentials the request carries.
//!
//! - With [`principal`](crate::IdempotencyLayer::principal), the principal is part of the record's id. Two principals
//!   never meet, and a rotated token changes nothing.
//! - Without it, or where it names nobody, the credential headers are hashed into a *second* fingerprint: the same
//!   request with other credentials is refused with `caller-changed` and never answered with somebody else's response.
//! - Credentials that change with each request (a signature, a DPoP proof) would make every retry look like another
//!   caller. Without a principal they are refused, so that this shows at the first request and not at the first retry.

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName};

use crate::hash::{FieldHasher, HashSecret};
use crate::store::CallerFingerprint;

/// Names the principal of a request; `None` is a request without one.
pub(crate) type PrincipalOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// What is known of a request's caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The service named one; goes into the record's id.
    Principal(String),
    /// The credentials as they came; goes into the second fingerprint.
    Credentials { any: bool },
    /// The credentials change with each request, and nobody said whose they are.
    PerRequest,
}

impl Caller {
    pub(crate) fn principal(&self) -> Option<&str> {
        match self {
            Self::Principal(principal) => Some(principal),
            Self::Credentials { .. } | Self::PerRequest => None,
        }
    }

    pub(crate) fn into_principal(self) -> Option<String> {
        match self {
            Self::Principal(principal) => Some(principal),
            Self::Credentials { .. } | Self::PerRequest => None,
        }
    }
}

pub(crate) fn caller(principal: Option<&PrincipalOf>, credentials: &[HeaderName], parts: &Parts) -> Caller {
    if let Some(principal) = principal.and_then(|principal| principal(parts)) {
        return Caller::Principal(principal);
    }
    if changes_per_request(&parts.headers) {
        return Caller::PerRequest;
    }
    Caller::Credentials { any: credentials.iter().any(|name| parts.headers.contains_key(name)) }
}

/// The second fingerprint, of the credentials that a request carries.
pub(crate) fn caller_fingerprint(
    secret: &HashSecret,
    credentials: &[HeaderName],
    headers: &HeaderMap,
) -> CallerFingerprint {
    let mut hasher = FieldHasher::new(secret, DOMAIN);
    for name in credentials {
        hasher.field(name.as_str().as_bytes()).header(headers, name);
    }
    CallerFingerprint::from_bytes(hasher.finish())
}

/// The second fingerprint where there are no credentials, or the principal says it all.
pub(crate) fn fingerprint_of_nobody(secret: &HashSecret) -> CallerFingerprint {
    CallerFingerprint::from_bytes(FieldHasher::new(secret, DOMAIN).finish())
}

/// The default credential headers.
pub(crate) fn default_credentials() -> Vec<HeaderName> {
    vec![AUTHORIZATION, COOKIE, HeaderName::from_static("x-api-key")]
}

fn changes_per_request(headers: &HeaderMap) -> bool {
    let signed = headers.get_all(AUTHORIZATION).iter().any(|value| {
        let value = value.as_bytes();
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        PER_REQUEST_SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known))
    });
    signed || PER_REQUEST_HEADERS.iter().any(|name| headers.contains_key(name))
}

const DOMAIN: &str = "idempotency caller v1";

/// `Authorization` schemes whose value is made anew for each request: AWS Signature Version 4, DPoP (RFC 9449), Digest
/// (RFC 7616, whose `nc` counts up), and the drafts before HTTP Message Signatures.
const PER_REQUEST_SCHEMES: [&[u8]; 4] = [b"AWS4-HMAC-SHA256", b"DPoP", b"Digest", b"Signature"];

/// Headers that carry such a value by themselves: a DPoP proof (RFC 9449), HTTP Message Signatures (RFC 9421).
static PER_REQUEST_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("dpop"), HeaderName::from_static("signature-input")];

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(name: &str, value: &str) -> Parts {
        Request::post("/").header(name, value).body(()).expect("a request").into_parts().0
    }

    fn fingerprint(parts: &Parts) -> CallerFingerprint {
        caller_fingerprint(&HashSecret::default(), &default_credentials(), &parts.headers)
    }

    /// Fails when a header is missing from `default_credentials`, or `caller_fingerprint` hashes no credentials.
    #[test]
    fn each_credential_header_makes_another_caller() {
        let callers = [
            parts("authorization", "one"),
            parts("authorization", "two"),
            parts("cookie", "one"),
            parts("x-api-key", "one"),
            parts("accept", "one"),
        ];
        for (at, left) in callers.iter().enumerate() {
            for right in &callers[at + 1..] {
                assert_ne!(fingerprint(left), fingerprint(right));
            }
        }
        assert_eq!(fingerprint(&parts("accept", "one")), fingerprint(&parts("accept", "two")));
    }

    /// Fails when any scheme or header is dropped from the lists, and when a scheme is compared with its case or by its
    /// beginning only.
    #[test]
    fn credentials_made_for_one_request_are_recognised() {
        for (name, value) in [
            ("authorization", "AWS4-HMAC-SHA256 Credential=a"),
            ("authorization", "dpop token"),
            ("authorization", "Digest username=a"),
            ("authorization", "signature keyId=a"),
            ("dpop", "proof"),
            ("signature-input", "sig1=()"),
        ] {
            assert_eq!(caller(None, &[], &parts(name, value)), Caller::PerRequest, "{name}: {value}");
        }
        for value in ["Bearer Signature", "Basic Zm9v", "SignatureX a"] {
            assert_ne!(caller(None, &[], &parts("authorization", value)), Caller::PerRequest, "{value}");
        }
    }

    /// Fails when `caller` takes nobody for a principal.
    #[test]
    fn where_the_principal_is_nobody_credentials_tell_callers_apart() {
        let nobody: PrincipalOf = Arc::new(|_| None);
        let of = |name, value| caller(Some(&nobody), &default_credentials(), &parts(name, value));
        assert_eq!(of("authorization", "Bearer one"), Caller::Credentials { any: true });
        assert_eq!(of("accept", "one"), Caller::Credentials { any: false });
        assert_eq!(of("dpop", "proof"), Caller::PerRequest);
    }

    /// Fails when `caller` looks at credentials before it asks for the principal.
    #[test]
    fn a_principal_outweighs_credentials() {
        let principal: PrincipalOf = Arc::new(|_| Some("alice".to_owned()));
        let of = |value| caller(Some(&principal), &default_credentials(), &parts("authorization", value));
        assert_eq!(of("one"), Caller::Principal("alice".to_owned()));
        assert_eq!(of("dpop two"), Caller::Principal("alice".to_owned()));
    }
}
