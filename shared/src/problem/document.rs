//! A problem travels as a JSON document (RFC 9457, section 3) whose members are written here and
//! nowhere else.
//!
//! Their order is not part of the interface.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Extra, Problem};

impl Problem {
    /// The problem document, for a response of the type `application/problem+json` (RFC 9457,
    /// section 3).
    #[must_use]
    pub fn to_json(&self) -> Bytes {
        let mut document = Map::new();
        let mut member = |name: &str, value: Value| document.insert(name.to_owned(), value);
        member("type", self.type_uri().into());
        member("title", self.code.title().into());
        member("status", self.status().as_u16().into());
        member("detail", self.detail().into());
        member("code", self.code.as_str().into());
        member("retryable", self.code.retryable().into());
        match &self.extra {
            Extra::None => None,
            Extra::OriginalStatus(status) => member("original_status", status.as_u16().into()),
            Extra::Record(record) => member("record", record.as_str().into()),
        };
        Bytes::from(Value::Object(document).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http::StatusCode;

    use super::*;
    use crate::ProblemCode;
    use crate::problem::code::tests::agreed;
    use crate::problem::tests::occurrence;

    fn document(problem: &Problem) -> Map<String, Value> {
        serde_json::from_slice(&problem.to_json()).unwrap()
    }

    fn members_of(document: &Map<String, Value>) -> HashSet<&str> {
        document.keys().map(String::as_str).collect()
    }

    /// Fails when `to_json` leaves `title` out, or writes `null` for an absent `record`.
    #[test]
    fn documents_have_the_agreed_members_and_no_others() {
        for (entry, &code) in agreed().iter().zip(ProblemCode::ALL) {
            let common = ["type", "title", "status", "detail", "code", "retryable"];
            let extra = entry.get("extra").and_then(Value::as_array);
            let extra = extra.into_iter().flatten().filter_map(Value::as_str);
            let document = document(&occurrence(code));
            assert_eq!(members_of(&document), common.into_iter().chain(extra).collect(), "{code:?}");
        }
    }

    /// Fails when `to_json` takes `detail` from the code, gaps included.
    #[test]
    fn members_say_what_the_problem_says() {
        let problem = Problem::response_unavailable(StatusCode::CREATED);
        let document = document(&problem);
        assert_eq!(document["type"], "urn:idempotency:problem:response-unavailable");
        assert_eq!(document["title"], problem.code().title());
        assert_eq!(document["status"], 409);
        assert_eq!(document["detail"], problem.detail());
        assert_eq!(document["code"], "response-unavailable");
        assert_eq!(document["retryable"], false);
        assert_eq!(document["original_status"], 201);
    }

    /// Fails when `to_json` takes `type` from the code.
    #[test]
    fn with_type_changes_the_type_alone() {
        let before = Problem::outcome_unknown("9f86d081");
        let after = before.clone().with_type("/errors#outcome-unknown");
        let mut expected = document(&before);
        expected.insert("type".into(), "/errors#outcome-unknown".into());
        assert_eq!(document(&after), expected);
    }

    /// Fails when `to_json` writes the record's `Debug` text.
    #[test]
    fn record_is_kept_as_given() {
        let problem = Problem::outcome_unknown("a\"b\n");
        assert_eq!(document(&problem)["record"], "a\"b\n");
        assert_eq!(problem.record(), Some("a\"b\n"));
        assert_eq!(problem.original_status(), None);
    }
}
