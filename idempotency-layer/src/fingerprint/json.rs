//! One text for all ways of writing the same JSON (RFC 8259), without a loss.
//!
//! Members are sorted by name; those of one name keep their order. Strings are written anew. Numbers and literals stay as
//! they are: parsed into floating point, two amounts could become one.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Whether the media type is `application/json` or ends in `+json` (RFC 6839, section 3.1).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(content_type)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type == "application/json" || media_type.ends_with("+json")
}

/// The canonical text; none for what is not JSON, or nests too deeply.
pub(super) fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    let value: &RawValue = serde_json::from_slice(body).ok()?;
    let mut text = Vec::with_capacity(body.len());
    write(value.get(), MAX_DEPTH, &mut text)?;
    Some(text)
}

fn write(value: &str, depth: usize, text: &mut Vec<u8>) -> Option<()> {
    let value = value.trim_ascii();
    match value.as_bytes().first()? {
        b'{' => {
            let members = serde_json::Deserializer::from_str(value).deserialize_map(Members).ok()?;
            text.push(b'{');
            for (name, values) in members {
                for value in values {
                    write_string(&name, text)?;
                    text.push(b':');
                    write(value.get(), depth.checked_sub(1)?, text)?;
                    text.push(b',');
                }
            }
            text.push(b'}');
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
            text.push(b'[');
            for item in items {
                write(item.get(), depth.checked_sub(1)?, text)?;
                text.push(b',');
            }
            text.push(b']');
        }
        b'"' => write_string(&serde_json::from_str::<String>(value).ok()?, text)?,
        _ => text.extend_from_slice(value.as_bytes()),
    }
    Some(())
}

fn write_string(string: &str, text: &mut Vec<u8>) -> Option<()> {
    serde_json::to_writer(text, string).ok()
}

/// Reads an object's members, sorted by name. A map type would keep one of those that share a name.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = BTreeMap<String, Vec<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Self::Value::new();
        while let Some((name, value)) = access.next_entry()? {
            members.entry(name).or_default().push(value);
        }
        Ok(members)
    }
}

/// Each level is read once more for each level around it, so the depth bounds the work.
const MAX_DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn text(body: &str) -> Option<String> {
        canonical(body.as_bytes()).map(|text| String::from_utf8(text).expect("text"))
    }

    /// Fails when members are not sorted, white space stays, or strings are copied.
    #[test]
    fn what_says_the_same_is_the_same() {
        let same = text(r#"{"a":[1,"\u00e9",null],"b":{"c":true,"d":""}}"#);
        assert!(same.is_some());
        assert_eq!(same, text("\n{ \"b\" : {\"d\":\"\",\t\"c\":true }, \"a\":[ 1 ,\"é\", null ] } "));
    }

    /// Fails when numbers are parsed, one of two members is dropped, or arrays are sorted.
    #[test]
    fn what_may_say_something_else_differs() {
        let texts = [
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":2,"a":1}"#,
            r#"{"a":12345678901234567890.1}"#,
            r#"{"a":12345678901234567890.2}"#,
            "[1,2]",
            "[2,1]",
            "[12]",
            "[[1],2]",
            r#"{"a":{"b":1}}"#,
            r#"{"a":{},"b":1}"#,
            "{}",
            "[]",
            "null",
            r#""null""#,
        ];
        for (at, left) in texts.iter().enumerate() {
            assert!(text(left).is_some(), "{left}");
            for right in &texts[at + 1..] {
                assert_ne!(text(left), text(right), "{left} {right}");
            }
        }
    }

    /// Fails when the depth is not bounded, or an error is taken for an empty text.
    #[test]
    fn what_is_not_json_or_too_deep_has_no_canonical_text() {
        for body in ["", "{", "[1,]", "{} {}", "nul", "{\"a\":\"\\x\"}"] {
            assert_eq!(text(body), None, "{body}");
        }
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(text(&nested(MAX_DEPTH)).is_some());
        assert_eq!(text(&nested(MAX_DEPTH + 2)), None);
        assert_eq!(text(&nested(300_000)), None);
    }

    /// Fails when parameters or case decide.
    #[test]
    fn json_is_known_by_its_media_type() {
        let is = |value| is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]));
        assert!(is("application/json") && is("Application/JSON; charset=utf-8") && is("application/ld+json"));
        assert!(!is("text/plain") && !is("application/jsonx") && !is("text/plain; x=application/json"));
    }
}
