//! A field value holds a key in one of two forms, and its first character says which.
//!
//! The [module above](crate::key) states the grammar; this file follows it. Whether the characters
//! and the length make a key is decided by [`IdempotencyKey`] itself, the same for both forms.

use std::borrow::Cow;

use http::HeaderValue;
use sfv::{ItemSerializer, Parser, StringRef};

use super::{IdempotencyKey, KeyError, KeyErrorKind, KeyLimit};

pub(super) fn read(value: &HeaderValue, limit: KeyLimit) -> Result<IdempotencyKey, KeyError> {
    // How long a field is, the sender decides. A key of 255 escaped characters takes 512 bytes; the
    // rest is for parameters.
    if value.len() > MAX_VALUE_LEN {
        return Err(KeyError::too_long(value.len(), limit));
    }
    match trim_spaces(value.as_bytes()) {
        quoted @ [b'"', ..] => IdempotencyKey::within(unquote(quoted)?.as_str(), limit),
        bare => IdempotencyKey::within(visible(bare)?, limit),
    }
}

pub(super) fn bare(key: &IdempotencyKey) -> Option<HeaderValue> {
    // A key has no other characters that would be refused. All are looked at, which is faster than to stop at one.
    let needs_quotes = key.0.iter().fold(false, |needs, c| needs | matches!(c, b' ' | b'"' | b',' | b';'));
    if needs_quotes {
        return None;
    }
    HeaderValue::from_maybe_shared(key.0.clone()).ok().map(sensitive)
}

pub(super) fn quoted(key: &IdempotencyKey) -> HeaderValue {
    let item = StringRef::from_str(key.as_str()).map(|key| ItemSerializer::new().bare_item(key).finish());
    sensitive(
        HeaderValue::try_from(item.expect("a key holds what a structured-field String can")).expect("and is ASCII"),
    )
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn trim_spaces(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

fn unquote(value: &[u8]) -> Result<Cow<'_, StringRef>, KeyError> {
    Parser::new(value).parse_item().map_err(|_| KeyError::new(KeyErrorKind::Invalid))
}

fn visible(value: &[u8]) -> Result<&str, KeyError> {
    let is_bare = |c: &u8| c.is_ascii_graphic() && !matches!(c, b'"' | b',' | b';');
    match str::from_utf8(value) {
        Ok(key) if value.iter().all(is_bare) => Ok(key),
        _ => Err(KeyError::new(KeyErrorKind::Invalid)),
    }
}

/// Bytes of a field value above which it is not parsed.
const MAX_VALUE_LEN: usize = 8192;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a structured-field String can hold.
    const KEY: &str = "[ -~]{1,255}";

    /// The part of [`KEY`] that needs no quotes: nothing but visible ASCII, without `"`, `,` and
    /// `;`.
    const BARE_KEY: &str = r"[!#-+\--:<-~]{1,255}";

    fn value(bytes: impl AsRef<[u8]>) -> HeaderValue {
        HeaderValue::from_bytes(bytes.as_ref()).unwrap()
    }

    fn quote(key: &str) -> HeaderValue {
        value(ItemSerializer::new().bare_item(StringRef::from_str(key).unwrap()).finish())
    }

    /// Fails when `sensitive` does nothing.
    #[test]
    fn written_key_is_not_shown() {
        let key = IdempotencyKey::new("order-4711").unwrap();
        assert_eq!(format!("{:?} {:?}", key.bare().unwrap(), key.quoted()), "Sensitive Sensitive");
    }

    fn kind_of(bytes: impl AsRef<[u8]>) -> Option<KeyErrorKind> {
        IdempotencyKey::parse(&value(bytes)).err().map(|error| error.kind())
    }

    proptest! {
        /// Fails when `read` trims the key that `unquote` found, or when `within` refuses space.
        #[test]
        fn quoted_key_is_read_back(key in KEY) {
            let read = IdempotencyKey::parse(&quote(&key)).unwrap();
            prop_assert_eq!(read.as_str(), &key);
        }

        /// Fails when `visible` refuses `:` too, or when `read` makes the bare key lower case.
        #[test]
        fn bare_and_quoted_forms_are_one_key(key in BARE_KEY) {
            let bare = IdempotencyKey::parse(&value(&key)).unwrap();
            prop_assert_eq!(&bare, &IdempotencyKey::parse(&quote(&key)).unwrap());
            prop_assert_eq!(bare, IdempotencyKey::new(&key).unwrap());
        }

        /// Fails when `quoted` writes no escapes, or `bare` accepts what `visible` refuses.
        #[test]
        fn written_key_is_read_back(key in KEY) {
            let key = IdempotencyKey::new(&key).unwrap();
            prop_assert_eq!(&IdempotencyKey::parse(&key.quoted()).unwrap(), &key);
            let needs_quotes = key.as_str().contains([' ', '"', ',', ';']);
            prop_assert_eq!(key.bare().map(|value| IdempotencyKey::parse(&value).unwrap()), (!needs_quotes).then_some(key));
        }

        /// Fails when `within` accepts the empty key, and when `unquote` expects the parser to
        /// succeed.
        #[test]
        fn any_bytes_are_a_valid_key_or_an_error(
            bytes in prop_oneof![
                vec(any::<u8>(), 0..600),
                vec(prop::sample::select(b"\"\\;,=a1 :?\t\x7f\x80".to_vec()), 0..12),
            ],
        ) {
            if let Ok(value) = HeaderValue::from_bytes(&bytes)
                && let Ok(key) = IdempotencyKey::parse(&value)
            {
                prop_assert!((1..=255).contains(&key.as_str().len()));
                prop_assert!(key.as_str().bytes().all(|c| matches!(c, b' '..=b'~')));
            }
        }
    }

    /// Fails when `visible` accepts `;`, and when `trim_spaces` drops tabs too.
    #[test]
    fn malformed_values_are_invalid() {
        let malformed: &[&[u8]] = &[
            b"",
            b"   ",
            br#""""#,
            br#" "" "#,
            // Lists.
            b"a,b",
            br#""a","b""#,
            br#""a", "b""#,
            br#"("a" "b")"#,
            // Text behind the quoted form, or none where it must be.
            br#""a" x"#,
            br#""a"x"#,
            br#""a"""#,
            br#""a";"#,
            br#""a";P=1"#,
            br#""a";p="#,
            br#""a"#,
            br#"""#,
            br#""a\"#,
            br#""a\q""#,
            // What needs quotes and has none.
            br#"a"b"#,
            br#"a""#,
            b"a;b",
            b"a b",
            br#"x="a""#,
            // Other characters.
            b"\ta",
            b"a\t",
            b"a\tb",
            b"\"a\"\t",
            b"\"a\tb\"",
            "ключ".as_bytes(),
            "\"ключ\"".as_bytes(),
            b"\xff",
            b"%\"caf%c3%a9\"",
        ];
        for bytes in malformed {
            assert_eq!(kind_of(bytes), Some(KeyErrorKind::Invalid), "{}", bytes.escape_ascii());
        }
    }

    /// Fails when `read` does not call `trim_spaces`, and when `visible` refuses backslashes.
    #[test]
    fn well_formed_values_are_the_key_they_hold() {
        for (bytes, key) in [
            ("abc", "abc"),
            ("  abc ", "abc"),
            (r#""abc""#, "abc"),
            (r#"  "abc" "#, "abc"),
            (r#"" abc ""#, " abc "),
            (r#""a,b;c""#, "a,b;c"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#""a";p=1"#, "a"),
            (r#""a";p;q="x y"; r=:YWJj:"#, "a"),
            // Items of other types are bare values like any other.
            (":YWJj:", ":YWJj:"),
            ("?1", "?1"),
            ("-1.5", "-1.5"),
            ("@1659578233", "@1659578233"),
            ("(a)", "(a)"),
            (r"a\q", r"a\q"),
            ("a='b'", "a='b'"),
        ] {
            let read = IdempotencyKey::parse(&value(bytes)).unwrap();
            assert_eq!(read.as_str(), key, "{bytes}");
        }
    }

    /// Fails when `MAX_VALUE_LEN` is 511, below what 255 escaped characters take.
    #[test]
    fn escapes_count_as_one_character() {
        assert_eq!(kind_of(quote(&r"\".repeat(255))), None);
        assert_eq!(kind_of(quote(&r#"""#.repeat(256))), Some(KeyErrorKind::TooLong { length: 256, limit: 255 }));
    }

    /// Fails when `read` compares the length of the value with `limit`, before the grammar.
    #[test]
    fn malformed_value_is_invalid_however_long() {
        assert_eq!(kind_of("a b".repeat(200)), Some(KeyErrorKind::Invalid));
    }

    /// Fails when `MAX_VALUE_LEN` is one more or one less.
    #[test]
    fn value_above_8192_bytes_is_not_parsed() {
        let parameters = format!(r#""a";p="{}""#, "x".repeat(8192 - 8));
        assert_eq!(kind_of(&parameters), None);
        assert_eq!(kind_of(parameters + " "), Some(KeyErrorKind::TooLong { length: 8193, limit: 255 }));
    }

    /// Fails when the comparison in `within` is `>=`.
    #[test]
    fn limit_is_the_last_accepted_length() {
        let accepted = "a".repeat(255);
        let refused = "a".repeat(256);
        let too_long = Some(KeyErrorKind::TooLong { length: 256, limit: 255 });
        assert_eq!(kind_of(&accepted), None);
        assert_eq!(kind_of(quote(&accepted)), None);
        assert_eq!(kind_of(&refused), too_long);
        assert_eq!(kind_of(quote(&refused)), too_long);
        assert_eq!(IdempotencyKey::new(&refused).map_err(|error| Some(error.kind())), Err(too_long));
    }
}
