//! What a layer was told, checked once before a service comes of it.
//!
//! The setters of [`IdempotencyLayer`](crate::IdempotencyLayer) take any value in any order; what they add up to is
//! checked as a whole, so that no service runs with a lease that never lapses or a record that forgets its own lease.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use idempotency_shared::{DerivationSecret, IDEMPOTENCY_KEY, KeyLimit};

use crate::caller::{PrincipalOf, default_credentials};
use crate::fingerprint::RequestFingerprint;
use crate::hash::HashSecret;
use crate::refusal::Render;
use crate::replay::HeaderRules;
use crate::store::{LapsePolicy, UnknownOutcome};

/// The settings of one layer.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) scope: Arc<str>,
    pub(crate) principal: Option<PrincipalOf>,
    pub(crate) credentials: Vec<HeaderName>,
    pub(crate) anonymous: bool,
    pub(crate) methods: Vec<Method>,
    pub(crate) header: HeaderName,
    pub(crate) key_limit: KeyLimit,
    pub(crate) require_key: bool,
    pub(crate) lease: Duration,
    pub(crate) retention: Duration,
    pub(crate) max_request_body: usize,
    pub(crate) max_response_body: usize,
    pub(crate) max_running: usize,
    pub(crate) max_buffered: usize,
    pub(crate) max_attempts: u32,
    pub(crate) unknown: UnknownOutcome,
    pub(crate) fingerprint: RequestFingerprint,
    pub(crate) header_rules: HeaderRules,
    pub(crate) secret: HashSecret,
    pub(crate) derivation_secret: Option<DerivationSecret>,
    pub(crate) documentation: Option<String>,
    pub(crate) record_deadline: Duration,
    pub(crate) publish_expiry: bool,
    pub(crate) render: Option<Render>,
}

impl Config {
    /// What is wrong with the settings, if anything.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |kind| Err(ConfigError { kind, lease: self.lease, retention: self.retention });
        if self.scope.is_empty() {
            return refuse(ConfigErrorKind::EmptyScope);
        }
        if self.lease < MIN_LEASE || self.lease > MAX_LEASE {
            return refuse(ConfigErrorKind::Lease);
        }
        if self.retention > MAX_RETENTION {
            return refuse(ConfigErrorKind::Retention);
        }
        if self.retention < self.lease {
            return refuse(ConfigErrorKind::RetentionBelowLease);
        }
        if self.max_running == 0 {
            return refuse(ConfigErrorKind::MaxRunning);
        }
        if self.max_buffered < self.max_request_body {
            return refuse(ConfigErrorKind::MaxBuffered);
        }
        if self.max_attempts == 0 {
            return refuse(ConfigErrorKind::MaxAttempts);
        }
        if self.record_deadline > MAX_RECORD_DEADLINE {
            return refuse(ConfigErrorKind::RecordDeadline);
        }
        if self.methods.is_empty() {
            return refuse(ConfigErrorKind::NoMethods);
        }
        if self.documentation.is_some() && self.documentation_link().is_none() {
            return refuse(ConfigErrorKind::Documentation);
        }
        Ok(())
    }

    /// The policy that goes into each claim.
    pub(crate) fn lapse_policy(&self) -> LapsePolicy {
        // Zero has been refused by `check`.
        let max_attempts = NonZeroU32::new(self.max_attempts).unwrap_or(NonZeroU32::MIN);
        LapsePolicy { unknown: self.unknown, max_attempts }
    }

    /// The value of the `Link` header (RFC 8288), where there is documentation and its address can stand in a header.
    pub(crate) fn documentation_link(&self) -> Option<HeaderValue> {
        let uri = self.documentation.as_deref()?;
        let is_uri = !uri.is_empty() && uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte));
        is_uri.then(|| HeaderValue::try_from(format!("<{uri}>; rel=\"describedby\"")).ok()).flatten()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scope: Arc::from("default"),
            principal: None,
            credentials: default_credentials(),
            anonymous: false,
            methods: vec![Method::POST],
            header: IDEMPOTENCY_KEY,
            key_limit: KeyLimit::default(),
            require_key: true,
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 60 * 60),
            max_request_body: 1024 * 1024,
            max_response_body: 1024 * 1024,
            max_running: 1024,
            max_buffered: 64 * 1024 * 1024,
            max_attempts: 5,
            unknown: UnknownOutcome::default(),
            fingerprint: RequestFingerprint::default(),
            header_rules: HeaderRules::default(),
            secret: HashSecret::default(),
            derivation_secret: None,
            documentation: None,
            record_deadline: Duration::from_secs(5),
            publish_expiry: false,
            render: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("scope", &self.scope)
            .field("methods", &self.methods)
            .field("lease", &self.lease)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

/// The settings of a layer contradict themselves or each other. The text says which, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    lease: Duration,
    retention: Duration,
}

/// Which setting is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The scope is empty.
    EmptyScope,
    /// The lease is shorter than 100 ms or longer than a day.
    Lease,
    /// The retention is longer than ten years.
    Retention,
    /// The retention is shorter than the lease.
    RetentionBelowLease,
    /// No run is allowed.
    MaxRunning,
    /// Not even one request of the greatest size could be buffered.
    MaxBuffered,
    /// No attempt is allowed.
    MaxAttempts,
    /// The record deadline is longer than a day.
    RecordDeadline,
    /// No method is keyed.
    NoMethods,
    /// The address of the documentation cannot stand in a `Link` header.
    Documentation,
}

impl ConfigError {
    /// Which setting is wrong.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, retention) = (self.lease, self.retention);
        match self.kind {
            ConfigErrorKind::EmptyScope => {
                f.write_str("the scope is empty: name the operation, as in `.scope(\"order:create\")`, or leave it out")
            }
            ConfigErrorKind::Lease => write!(
                f,
                "a lease of {lease:?} cannot be kept: choose 100 ms to 24 h, longer than any pause of the process"
            ),
            ConfigErrorKind::Retention => {
                write!(f, "a retention of {retention:?} is out of range: choose at most ten years")
            }
            ConfigErrorKind::RetentionBelowLease => write!(
                f,
                "the retention ({retention:?}) is shorter than the lease ({lease:?}): a record must outlive its lease, \
                 and should outlive the last retry of any client"
            ),
            ConfigErrorKind::MaxRunning => f.write_str("max_running must be at least 1"),
            ConfigErrorKind::MaxBuffered => {
                f.write_str("max_buffered must hold at least one request of max_request_body bytes")
            }
            ConfigErrorKind::MaxAttempts => f.write_str("max_attempts must be at least 1"),
            ConfigErrorKind::RecordDeadline => {
                f.write_str("no client waits longer than a day for its answer: choose a shorter record_deadline")
            }
            ConfigErrorKind::NoMethods => f.write_str("no method is keyed: leave the layer out instead"),
            ConfigErrorKind::Documentation => f.write_str(
                "the address of the documentation must be a URI of visible ASCII characters without '<', '>' and '\"'",
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Below this, an ordinary pause of a process loses the lease.
const MIN_LEASE: Duration = Duration::from_millis(100);
const MAX_RECORD_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_RETENTION: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
