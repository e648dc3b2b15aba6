//! A problem is recognized by its code alone; this file lists the codes and the texts that belong
//! to each.
//!
//! The texts are part of the interface: operators search for them and clients show them. They
//! change only with a note to those who upgrade, and never what a code means.

use http::StatusCode;

/// The reasons for which a keyed request gets an answer that its handler did not write.
///
/// `#[non_exhaustive]`: a later version may add reasons. A client that meets a code it does not
/// know goes by the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemCode {
    /// The method is one that needs a key, and the request has none.
    KeyMissing,
    /// The field is there and does not hold a key.
    KeyInvalid,
    /// The key is longer than accepted.
    KeyTooLong,
    /// The field occurs more than once.
    KeyRepeated,
    /// The request body broke off, or its length was not the announced one. Nothing ran.
    BodyUnreadable,
    /// The request body is larger than accepted. Nothing ran.
    RequestTooLarge,
    /// The key already means another request.
    KeyReused,
    /// The key means this request, sent first with other credentials; it may have taken effect.
    CallerChanged,
    /// The first request with the key has not ended yet.
    InFlight,
    /// The operation ran, and its response cannot be sent again.
    ResponseUnavailable,
    /// The operation may have taken effect, and waits for an operator.
    OutcomeUnknown,
    /// As many operations are running, or bytes held, as the service allows. Nothing ran.
    Overloaded,
    /// The service is shutting down. Nothing ran.
    Draining,
    /// The store did not answer, so nobody knows whether the key was used.
    StoreUnavailable,
    /// The store's record is damaged or of a newer version. Nothing ran.
    RecordUnreadable,
    /// Another request took the key over while this one ran.
    LeaseLost,
    /// The handler ended, kept or moved the transaction that its answer was to be written in.
    TransactionLost,
    /// The transaction did not begin or did not commit.
    TransactionFailed,
    /// The handler panicked, and what it had done by then is unknown.
    HandlerPanicked,
    /// The credentials change with each request, and the service does not say whose they are.
    PrincipalRequired,
}

impl ProblemCode {
    /// Every code of this version.
    pub const ALL: &'static [Self] = &[
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyTooLong,
        Self::KeyRepeated,
        Self::BodyUnreadable,
        Self::RequestTooLarge,
        Self::KeyReused,
        Self::CallerChanged,
        Self::InFlight,
        Self::ResponseUnavailable,
        Self::OutcomeUnknown,
        Self::Overloaded,
        Self::Draining,
        Self::StoreUnavailable,
        Self::RecordUnreadable,
        Self::LeaseLost,
        Self::TransactionLost,
        Self::TransactionFailed,
        Self::HandlerPanicked,
        Self::PrincipalRequired,
    ];

    /// The code that is written like this, in a body's `code` or in `Idempotency-Problem`; `None`
    /// when this version does not know it. Case matters.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == code)
    }

    /// The code as it is written: lower-case words joined by hyphens.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.text().code
    }

    /// The status of a response with this code.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.text().status
    }

    /// The member `title`, the same for each occurrence (RFC 9457, section 3.1.3).
    #[must_use]
    pub fn title(self) -> &'static str {
        self.text().title
    }

    /// Whether the same request with the same key may be answered differently when it is sent
    /// again, without anyone changing it first.
    #[must_use]
    pub fn retryable(self) -> bool {
        self.text().retryable
    }

    /// The member `type` (RFC 9457, section 3.1.1) where a service does not set its own:
    /// `urn:idempotency:problem:` and the code.
    ///
    /// It is a stable name and leads nowhere. The namespace is not registered, so compare codes,
    /// not types.
    #[must_use]
    pub fn type_uri(self) -> String {
        format!("urn:idempotency:problem:{}", self.as_str())
    }

    /// The member `detail`, with gaps in braces where an occurrence fills in its own values.
    pub(super) fn detail(self) -> &'static str {
        self.text().detail
    }

    /// Seconds to wait before the next attempt, where they are the same for each occurrence.
    pub(super) fn retry_after(self) -> Option<u32> {
        self.text().retry_after
    }

    fn text(self) -> Text {
        match self {
            Self::KeyMissing => Text {
                code: "key-missing",
                status: StatusCode::BAD_REQUEST,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key is missing",
                detail: "This operation runs only under an Idempotency-Key. Send the header with a value that is unique to this operation, and the same value on each retry.",
            },
            Self::KeyInvalid => Text {
                code: "key-invalid",
                status: StatusCode::BAD_REQUEST,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key is invalid",
                detail: "The Idempotency-Key header must be a quoted string (RFC 9651) or visible ASCII characters without quotes, commas and semicolons.",
            },
            Self::KeyTooLong => Text {
                code: "key-too-long",
                status: StatusCode::BAD_REQUEST,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key is too long",
                detail: "The Idempotency-Key header holds {length} characters; at most {limit} are accepted.",
            },
            Self::KeyRepeated => Text {
                code: "key-repeated",
                status: StatusCode::BAD_REQUEST,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key is repeated",
                detail: "The request carries more than one Idempotency-Key header. Send exactly one.",
            },
            Self::BodyUnreadable => Text {
                code: "body-unreadable",
                status: StatusCode::BAD_REQUEST,
                retryable: true,
                retry_after: None,
                title: "Request body could not be read",
                detail: "The request body ended early or did not match its length. Nothing was processed; send the request again with the same key.",
            },
            Self::RequestTooLarge => Text {
                code: "request-too-large",
                status: StatusCode::PAYLOAD_TOO_LARGE,
                retryable: false,
                retry_after: None,
                title: "Request body is too large",
                detail: "The request body is larger than {limit} bytes. Nothing was processed.",
            },
            Self::KeyReused => Text {
                code: "key-reused",
                status: StatusCode::UNPROCESSABLE_ENTITY,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key is already used",
                detail: "This key was used for a different request. Use a new key for a new operation; repeat the original request, unchanged, to retry it.",
            },
            Self::CallerChanged => Text {
                code: "caller-changed",
                status: StatusCode::UNPROCESSABLE_ENTITY,
                retryable: false,
                retry_after: None,
                title: "Idempotency-Key belongs to another caller",
                detail: "This request was first sent with other credentials and may have taken effect. Keep this key, do not replace it, and retry with the original credentials.",
            },
            Self::InFlight => Text {
                code: "in-flight",
                status: StatusCode::CONFLICT,
                retryable: true,
                // Depends on how long the first request has been running.
                retry_after: None,
                title: "A request is outstanding for this Idempotency-Key",
                detail: "The original request with this key is still being processed. Retry with the same key after the time in Retry-After.",
            },
            Self::ResponseUnavailable => Text {
                code: "response-unavailable",
                status: StatusCode::CONFLICT,
                retryable: false,
                retry_after: None,
                title: "Operation was processed, its response cannot be replayed",
                detail: "The original request with this key was processed with status {original_status}; its response was not kept. Do not send it with a new key; look the result up instead.",
            },
            Self::OutcomeUnknown => Text {
                code: "outcome-unknown",
                status: StatusCode::CONFLICT,
                retryable: false,
                retry_after: None,
                title: "Outcome of the operation is unknown",
                detail: "The original request with this key may or may not have taken effect and is held until an operator decides. Do not send it with a new key.",
            },
            Self::Overloaded => Text {
                code: "overloaded",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: true,
                retry_after: Some(1),
                title: "Too many operations in progress",
                detail: "Nothing was processed. Retry with the same key.",
            },
            Self::Draining => Text {
                code: "draining",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: true,
                retry_after: Some(1),
                title: "Service is shutting down",
                detail: "Nothing was processed. Retry with the same key.",
            },
            Self::StoreUnavailable => Text {
                code: "store-unavailable",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: true,
                retry_after: Some(1),
                title: "Idempotency store is unavailable",
                detail: "It could not be established whether this operation was processed before. Retry with the same key.",
            },
            Self::RecordUnreadable => Text {
                code: "record-unreadable",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: false,
                retry_after: None,
                title: "Idempotency record cannot be read",
                detail: "A record for this key exists but cannot be read by this version of the service. Nothing was processed.",
            },
            Self::LeaseLost => Text {
                code: "lease-lost",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: true,
                retry_after: Some(1),
                title: "Operation was taken over",
                detail: "This request lost its claim on the key while it ran. Retry with the same key to get the operation's result.",
            },
            Self::TransactionLost => Text {
                code: "transaction-lost",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                retryable: true,
                retry_after: None,
                title: "Operation's transaction was not returned",
                detail: "The handler ended, kept or moved its transaction. Nothing it wrote was committed. Retry with the same key once the service is mended.",
            },
            Self::TransactionFailed => Text {
                code: "transaction-failed",
                status: StatusCode::SERVICE_UNAVAILABLE,
                retryable: true,
                retry_after: Some(1),
                title: "Operation's transaction could not be committed",
                detail: "Nothing was committed. Retry with the same key.",
            },
            Self::HandlerPanicked => Text {
                code: "handler-panicked",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                retryable: true,
                retry_after: None,
                title: "Internal error",
                detail: "The operation failed unexpectedly and its outcome is unknown. Retry with the same key.",
            },
            Self::PrincipalRequired => Text {
                code: "principal-required",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                retryable: false,
                retry_after: None,
                title: "Service is misconfigured",
                detail: "Requests are signed one by one and the service does not say whose they are; idempotency cannot be kept. Configure a principal.",
            },
        }
    }
}

/// What is the same for every occurrence of a code.
struct Text {
    code: &'static str,
    status: StatusCode,
    retryable: bool,
    retry_after: Option<u32>,
    title: &'static str,
    detail: &'static str,
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Map, Value};

    use super::*;

    /// The texts as they were agreed upon, once for every code.
    const AGREED: &str = include_str!("../../testdata/problems.json");

    /// What stands for the seconds where they depend on the occurrence.
    const IN_FLIGHT: &str = "age of the run in whole seconds, rounded up, 1 to 5";

    pub(in crate::problem) fn agreed() -> Vec<Map<String, Value>> {
        serde_json::from_str(AGREED).unwrap()
    }

    /// Fails when any letter, status, `retryable` or `retry_after` of a code changes, or the last
    /// line of `ALL` is gone.
    #[test]
    fn texts_are_the_agreed_ones() {
        let agreed = agreed();
        assert_eq!(agreed.len(), ProblemCode::ALL.len());
        for (entry, &code) in agreed.iter().zip(ProblemCode::ALL) {
            for (member, value) in entry {
                match member.as_str() {
                    "code" => assert_eq!(code.as_str(), value),
                    "status" => assert_eq!(&code.status().as_u16(), value),
                    "retryable" => assert_eq!(&code.retryable(), value),
                    "title" => assert_eq!(code.title(), value),
                    "detail" => assert_eq!(code.detail(), value),
                    "retry_after" => {
                        let seconds = code.retry_after().map(|seconds| seconds.to_string());
                        assert_eq!(seconds.as_deref().unwrap_or(IN_FLIGHT), value, "{code:?}");
                    }
                    // What the document holds is compared where it is written.
                    "extra" => {}
                    unknown => panic!("{code:?} has a member {unknown} that nothing compares"),
                }
            }
            assert!(code.retry_after().is_none() || entry.contains_key("retry_after"), "{code:?}");
        }
    }

    /// Fails when `from_code` skips the first code.
    #[test]
    fn written_code_is_read_back() {
        for &code in ProblemCode::ALL {
            assert_eq!(ProblemCode::from_code(code.as_str()), Some(code));
        }
    }

    /// Fails when `from_code` compares with `eq_ignore_ascii_case`.
    #[test]
    fn other_text_is_no_code() {
        for text in ["", "Draining", " draining", "draining,draining", "unheard-of"] {
            assert_eq!(ProblemCode::from_code(text), None, "{text}");
        }
    }
}
