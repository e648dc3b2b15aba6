//! Whether a server can hold records, and what a warning is due for.

use std::collections::HashMap;

use redis::from_redis_value;

use super::failure::{misconfigured, of_verb};
use super::server::{Node, Server};
use crate::store::StoreError;

/// Refuses servers that are too old, and warns of those that forget.
pub(super) async fn check(server: &Server) -> Result<(), StoreError> {
    for node in server.nodes().await.map_err(of_verb)? {
        let facts = Facts::of(server, &node).await?;
        if facts.is_of_cluster != matches!(node, Node::Of(_)) {
            return Err(misconfigured(
                "the server is a node of a cluster, and of no use by itself: connect with `RedisStore::cluster`",
            ));
        }
        if facts.version < OLDEST {
            return Err(misconfigured("the server is older than Redis 6.2, whose scripts the store needs"));
        }
        for warning in facts.warnings() {
            tracing::warn!("{warning}");
        }
    }
    Ok(())
}

/// What a server says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    /// Valkey tells the Redis version that it is compatible with.
    version: (u32, u32),
    is_of_cluster: bool,
    policy: String,
    has_log: bool,
    /// `save`; none where the server does not tell, as hosted ones do not.
    snapshots: Option<String>,
}

impl Facts {
    async fn of(server: &Server, node: &Node) -> Result<Self, StoreError> {
        let answer = server.send_to(node, &redis::cmd("INFO")).await.map_err(of_verb)?;
        let text: String = from_redis_value(answer).map_err(|error| of_verb(error.into()))?;
        let mut save = redis::cmd("CONFIG");
        save.arg("GET").arg("save");
        let save = server.send_to(node, &save).await.ok().and_then(|answer| from_redis_value(answer).ok());
        Ok(Self::read(&text, save.and_then(|mut settings: HashMap<String, String>| settings.remove("save"))))
    }

    fn read(info: &str, snapshots: Option<String>) -> Self {
        let told: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim().split_once(':')).collect();
        let text = |name| told.get(name).copied().unwrap_or_default();
        let mut version = text("redis_version").split('.').map(|part| part.parse().unwrap_or(0));
        Self {
            version: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
            is_of_cluster: text("cluster_enabled") == "1",
            policy: text("maxmemory_policy").to_owned(),
            has_log: text("aof_enabled") == "1",
            snapshots,
        }
    }

    fn warnings(&self) -> impl Iterator<Item = &'static str> {
        let evicts = !matches!(&*self.policy, "" | "noeviction");
        let forgets = !self.has_log && self.snapshots.as_deref() == Some("");
        [
            evicts.then_some(
                "Redis may evict idempotency records, and with one its key runs again: set `maxmemory-policy noeviction`",
            ),
            forgets.then_some(
                "Redis keeps nothing on disk, and after a restart every key runs again: set `appendonly yes`",
            ),
        ]
        .into_iter()
        .flatten()
    }
}

/// Redis 6.2, the oldest that is tested for.
const OLDEST: (u32, u32) = (6, 2);

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(info: &str, save: Option<&str>) -> Facts {
        Facts::read(info, save.map(str::to_owned))
    }

    /// Fails when either warning is not given, or is given where the server does not tell or has one kind of persistence.
    #[test]
    fn a_server_that_forgets_is_warned_of() {
        let told = |policy: &str, log: &str, save| {
            let info =
                format!("# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:{policy}\r\naof_enabled:{log}\r\n");
            facts(&info, save).warnings().count()
        };
        assert_eq!(told("noeviction", "1", Some("")), 0);
        assert_eq!(told("noeviction", "0", Some("3600 1")), 0);
        assert_eq!(told("noeviction", "0", None), 0);
        assert_eq!(told("noeviction", "0", Some("")), 1);
        assert_eq!(told("volatile-ttl", "1", Some("")), 1);
        assert_eq!(told("allkeys-lru", "0", Some("")), 2);
    }

    /// Fails when versions are compared as text, or one that is not told passes.
    #[test]
    fn a_version_is_two_numbers() {
        for (text, is_old) in [("6.0.16", true), ("6.2.0", false), ("7.0.15", false), ("10.0", false), ("", true)] {
            let version = facts(&format!("redis_version:{text}\n"), None).version;
            assert_eq!(version < OLDEST, is_old, "{text}");
        }
    }
}
