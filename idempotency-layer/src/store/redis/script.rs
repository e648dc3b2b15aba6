//! The verbs as scripts, each an atomic step inside the server.
//!
//! A script is called by its hash. A server that does not know it, since it was restarted, failed over or flushed, gets
//! it whole once, in one more round trip.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs};

/// One verb's script.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// A verb on one record, as the server takes it if it knows the script.
pub(super) struct Call {
    script: &'static Script,
    by_hash: Cmd,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn on(&'static self, key: &[u8]) -> Call {
        let mut by_hash = Cmd::with_capacity(SCRIPT + ARGUMENTS, TYPICAL_BYTES);
        by_hash.arg("EVALSHA").arg(&self.hash).arg(1).arg(key);
        Call { script: self, by_hash }
    }
}

impl Call {
    pub(super) fn with(mut self, argument: impl ToRedisArgs) -> Self {
        self.by_hash.arg(argument);
        self
    }

    pub(super) fn key(&self) -> &[u8] {
        match self.by_hash.args_iter().nth(KEY) {
            Some(Arg::Simple(key)) => key,
            _ => unreachable!("a call is made with its key"),
        }
    }

    pub(super) fn by_hash(&self) -> &Cmd {
        &self.by_hash
    }

    /// The call with the whole script, which the server remembers.
    pub(super) fn whole(&self) -> Cmd {
        let mut whole = redis::cmd("EVAL");
        whole.arg(&self.script.text);
        for argument in self.by_hash.args_iter().skip(SCRIPT) {
            // A cursor is an argument of SCAN alone.
            if let Arg::Simple(argument) = argument {
                whole.arg(argument);
            }
        }
        whole
    }
}

/// Whether the server must be told the whole script.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

macro_rules! script {
    ($name:ident: $($part:literal)+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(&[$(include_str!(concat!("scripts/", $part, ".lua"))),+]));
    };
}

script!(CLAIM: "read" "claim" "write");
script!(RENEW: "read" "renew" "write");
script!(SETTLE: "end" "read" "settle" "write");
script!(FORGET: "read" "forget");
script!(RESOLVE: "read" "resolve" "write");
script!(LOOK: "read" "look");

/// The command and the script, before the count of keys.
const SCRIPT: usize = 2;

/// The key, behind its count.
const KEY: usize = 3;

/// The most that a verb has, with its key and the count of keys.
const ARGUMENTS: usize = 8;

/// Bytes to set aside for each call; a response takes more.
const TYPICAL_BYTES: usize = 320;
