//! The verbs as scripts, each an atomic step inside the server.
//!
//! A script is called by its hash. A server that does not know it, since it was restarted, failed over or flushed, gets
//! it whole once, in one more round trip.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, ToRedisArgs};

/// One verb's script.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// A verb on one record.
pub(super) struct Call {
    script: &'static Script,
    arguments: Vec<Vec<u8>>,
}

impl Script {
    fn new(verb: &str) -> Self {
        let text = format!("{}{verb}", include_str!("scripts/record.lua"));
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    pub(super) fn on(&'static self, key: &[u8]) -> Call {
        let mut arguments = Vec::with_capacity(ARGUMENTS);
        arguments.push(key.to_vec());
        Call { script: self, arguments }
    }
}

impl Call {
    pub(super) fn with(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.extend(argument.to_redis_args());
        self
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.arguments[0]
    }

    /// The call as the server takes it if it knows the script.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// The call with the whole script, which the server remembers.
    pub(super) fn whole(&self) -> Cmd {
        self.command("EVAL", &self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1);
        for argument in &self.arguments {
            command.arg(&argument[..]);
        }
        command
    }
}

/// Whether the server must be told the whole script.
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

macro_rules! scripts {
    ($($name:ident: $file:literal),+) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file, ".lua"))));)+
    };
}

scripts!(
    CLAIM: "claim", RENEW: "renew", SETTLE: "settle", FORGET: "forget", RESOLVE: "resolve", LOOK: "look"
);

/// The most that a verb has, and its key.
const ARGUMENTS: usize = 8;
