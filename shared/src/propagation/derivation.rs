//! What a derived key is made of, byte by byte, so that a run that starts again in another process or
//! another language derives the same one.
//!
//! The [module docs](crate::propagation) describe the message for those who implement it elsewhere.
//! No two different inputs have the same message, since each text and each list says its length
//! first.

use hmac::{Hmac, Mac};
use http::Method;
use sha2::Sha256;
use uuid::Builder;

use super::{DerivationSecret, Operation, Run};
use crate::IdempotencyKey;

/// The HMAC key where no secret is configured, and with or without one the first text of the message:
/// a secret that is used for other hashes as well makes no derived key by accident.
pub(super) const DOMAIN: &str = "idempotency derived key v1";

/// What a call is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// What it does, as the caller says.
    Given(Box<str>),
    /// Where it goes.
    Ambient { method: Method, origin: Box<str>, path: Box<str> },
}

/// Which version a derived UUID claims to have.
#[derive(Clone, Copy)]
pub(super) enum Version {
    V4,
    V8,
}

/// A derived key before six of its bits are overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Derived([u8; 16]);

impl Derived {
    pub(super) fn key(self, version: Version) -> IdempotencyKey {
        let uuid = match version {
            Version::V4 => Builder::from_random_bytes(self.0),
            Version::V8 => Builder::from_custom_bytes(self.0),
        };
        IdempotencyKey::from_uuid(uuid.into_uuid())
    }
}

pub(super) fn derive(run: &Run, operation: &Operation) -> Derived {
    let mut message = Message(run.secret.as_ref().map_or_else(DerivationSecret::mac_of_none, DerivationSecret::mac));
    message.text(DOMAIN);
    message.text(&run.scope);
    message.list(run.principal.as_slice());
    message.text(run.key.as_str());
    match &operation.name {
        Name::Given(name) => message.list(&[name]),
        // Three texts are never the one of a given name.
        Name::Ambient { method, origin, path } => message.list(&[method.as_str(), origin, path]),
    }
    message.list(&operation.discriminators);
    message.number(operation.nth);

    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..]: [u8; 32] = message.0.finalize().into_bytes().into();
    Derived([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
}

struct Message(Hmac<Sha256>);

impl Message {
    fn list(&mut self, texts: &[impl AsRef<str>]) {
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text.as_ref());
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Write;
    use std::process::{Command, Stdio};

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use serde_json::{Value, json};

    use super::*;
    use crate::Propagation;

    /// Everything that a derived key depends on.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Case {
        secret: Option<String>,
        scope: String,
        principal: Option<String>,
        key: String,
        operation: Vec<String>,
        discriminators: Vec<String>,
        nth: usize,
        v4: bool,
    }

    impl Case {
        fn derived(&self) -> String {
            let mut run = Propagation::builder(self.scope.as_str(), IdempotencyKey::new(&self.key).unwrap());
            if let Some(principal) = &self.principal {
                run = run.principal(principal.as_str());
            }
            if let Some(secret) = &self.secret {
                run = run.secret(DerivationSecret::new(secret.as_bytes()).unwrap());
            }
            let run = run.build();
            let operation = match self.operation.as_slice() {
                [name] => run.operation(name),
                [method, origin, path] => run.ambient(&method.parse().unwrap(), origin, path),
                other => panic!("neither a name nor a place: {other:?}"),
            };
            let operation = self.discriminators.iter().fold(operation, Operation::with).nth(self.nth);
            let operation = if self.v4 { operation.as_v4() } else { operation };
            operation.key().unwrap().as_str().to_owned()
        }

        fn json(&self) -> Value {
            json!({
                "secret": self.secret,
                "scope": self.scope,
                "principal": self.principal,
                "key": self.key,
                "operation": self.operation,
                "discriminators": self.discriminators,
                "nth": self.nth,
                "version": if self.v4 { 4 } else { 8 },
            })
        }

        fn from_json(value: &Value) -> Self {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let list = |value: &Value| value.as_array().unwrap().iter().map(|item| text(item).unwrap()).collect();
            Self {
                secret: text(&value["secret"]),
                scope: text(&value["scope"]).unwrap(),
                principal: text(&value["principal"]),
                key: text(&value["key"]).unwrap(),
                operation: list(&value["operation"]),
                discriminators: list(&value["discriminators"]),
                nth: usize::try_from(value["nth"].as_u64().unwrap()).unwrap(),
                v4: value["version"] == 4,
            }
        }
    }

    /// Short texts of few letters, so that fields that run into each other meet.
    fn near() -> impl Strategy<Value = Case> {
        let text = "[ab]{0,2}";
        let operation = prop_oneof![
            text.prop_map(|name| vec![name]),
            (prop::sample::select(vec!["GET", "POST"]), text, text).prop_map(|(method, origin, path)| vec![
                method.to_owned(),
                origin,
                path
            ]),
        ];
        (text, prop::option::of(text), "[ab]{1,2}", operation, vec(text, 0..3), 0_usize..2).prop_map(
            |(scope, principal, key, operation, discriminators, nth)| Case {
                secret: None,
                scope,
                principal,
                key,
                operation,
                discriminators,
                nth,
                v4: false,
            },
        )
    }

    /// Any text anywhere.
    fn any_case() -> impl Strategy<Value = Case> {
        let operation = prop_oneof![
            any::<String>().prop_map(|name| vec![name]),
            (prop::sample::select(vec!["GET", "POST"]), any::<String>(), any::<String>())
                .prop_map(|(method, origin, path)| vec![method.to_owned(), origin, path]),
        ];
        (
            prop::option::of("\\PC{16,90}"),
            any::<String>(),
            prop::option::of(any::<String>()),
            "[ -~]{1,255}",
            operation,
            vec(any::<String>(), 0..3),
            any::<usize>(),
            any::<bool>(),
        )
            .prop_map(|(secret, scope, principal, key, operation, discriminators, nth, v4)| Case {
                secret,
                scope,
                principal,
                key,
                operation,
                discriminators,
                nth,
                v4,
            })
    }

    /// What `testdata/derive.py` derives.
    fn derived_by_python(cases: &Value) -> Vec<String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/derive.py");
        let mut python = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test compares with Python: install python3");
        python.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "{script} failed");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn golden() -> Value {
        serde_json::from_str(include_str!("../../testdata/derived-keys.json")).unwrap()
    }

    /// Fails when anything in `derive` changes: an item, their order, the width or the order of a
    /// number's bytes, the domain, or which half of the hash is taken.
    #[test]
    fn derived_keys_are_the_golden_ones() {
        for case in golden().as_array().unwrap() {
            assert_eq!(case["derived"], Case::from_json(case).derived(), "{case}");
        }
    }

    /// Fails when either side changes alone.
    #[test]
    fn python_derives_the_same_keys() {
        let golden = golden();
        let derived: Vec<_> = golden.as_array().unwrap().iter().map(|case| case["derived"].clone()).collect();
        assert_eq!(derived_by_python(&golden), derived);

        let mut runner = TestRunner::deterministic();
        let cases: Vec<Case> = (0..300).map(|_| any_case().new_tree(&mut runner).unwrap().current()).collect();
        let python = derived_by_python(&cases.iter().map(Case::json).collect());
        assert_eq!(python.len(), cases.len());
        for (case, python) in cases.iter().zip(python) {
            assert_eq!(case.derived(), python, "{case:?}");
        }
    }

    /// Fails when `derive` leaves out any item, `text` or `list` writes no length, or an ambient call
    /// is one text of method, origin and path.
    #[test]
    fn different_calls_have_different_keys() {
        let mut runner = TestRunner::deterministic();
        let mut seen: HashMap<String, Case> = HashMap::new();
        for _ in 0..20_000 {
            let case = near().new_tree(&mut runner).unwrap().current();
            let earlier = seen.entry(case.derived()).or_insert_with(|| case.clone());
            assert_eq!(*earlier, case);
        }
        assert!(seen.len() > 5_000, "too few to meet: {}", seen.len());
    }

    proptest! {
        /// Fails when `derive` leaves out the secret, or `Version::V4` does as `V8`.
        #[test]
        fn secret_and_version_make_another_key(case in any_case(), secret in "[a-z]{16,70}") {
            let derived = case.derived();
            prop_assert_ne!(&Case { v4: !case.v4, ..case.clone() }.derived(), &derived);
            prop_assert_ne!(&Case { secret: Some(secret), ..case }.derived(), &derived);
        }

        /// Fails when `key` writes upper case, or sets no variant.
        #[test]
        fn derived_keys_are_uuids_in_lower_case(case in any_case()) {
            let derived = case.derived();
            let uuid = uuid::Uuid::parse_str(&derived).unwrap();
            prop_assert_eq!(uuid.hyphenated().to_string(), derived);
            prop_assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
            prop_assert_eq!(uuid.get_version_num(), if case.v4 { 4 } else { 8 });
        }
    }
}
