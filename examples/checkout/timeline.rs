//! What happens is told in the order in which it is seen, with the seconds since the beginning and whose doing it is.

use std::time::Instant;

use client_retry::IdempotencyKey;

/// The seconds since the beginning. Clones share it.
#[derive(Clone)]
pub(crate) struct Timeline {
    began: Instant,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    pub(crate) fn say(&self, who: &str, what: &str) {
        println!("{:7.3} s  {who:<9} {what}", self.began.elapsed().as_secs_f64());
    }
}

/// What may be shown of the key in a header.
pub(crate) fn shown(header: Option<&http::HeaderValue>) -> String {
    match header.and_then(|value| IdempotencyKey::parse(value).ok()) {
        Some(key) => format!("key {}…", key.prefix()),
        None => "no key".to_owned(),
    }
}
