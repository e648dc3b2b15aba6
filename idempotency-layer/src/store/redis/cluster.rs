//! Commands in a cluster: to the node that has the key's slot, wherever the slot goes.
//!
//! 1. The slot of a key is that of the cluster specification: CRC16 of the key, or of what stands in its first braces.
//! 2. Each node has a [`Link`] of its own. Which node has which slot is asked at the first need.
//! 3. `MOVED` names the new node: the slot is that one's from then on, and the map is asked anew beside the next command.
//! 4. `ASK` names it for one command, which goes there with `ASKING` before it. The two are sent as one: others send on
//!    that connection, and between the two there must be none. Of several commands that are sent as one, each has its own.
//! 5. A node that is gone, or not sure of its slots, is asked again after a moment, with the map asked anew. What has no
//!    answer within the time of a command has none; the next command asks for the map first, since whoever is silent may
//!    have been replaced and says of nothing that it has moved.
//!
//! The driver has a cluster client. It is not used, since it sends the two of rule 4 apart, and since its requests stood
//! still, some for good, in a test that moves a slot to and fro under a hundred of them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value, from_redis_value,
};
use tokio::time::{sleep, timeout};

use super::failure::is_of_connection;
use super::link::{Link, RESPONSE_TIMEOUT, Sent, Source};

/// A cluster, known by some of its nodes.
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    map: Mutex<Map>,
    /// Held by whoever asks for the slots, so that one asks for all.
    asking: tokio::sync::Mutex<()>,
}

/// Which node has which slot, as far as is known.
#[derive(Default)]
struct Map {
    /// How often it was asked for.
    version: u64,
    /// A node was silent since.
    is_doubtful: bool,
    ranges: Vec<Range>,
    links: HashMap<Node, Arc<Link>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    node: Node,
}

/// Host and port.
pub(super) type Node = (String, u16);

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Self {
        Self { seeds, map: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Sends to the node that has this key.
    pub(super) async fn send(&self, key: &[u8], sent: Sent<'_>) -> Result<Value, RedisError> {
        let sent = timeout(RESPONSE_TIMEOUT, self.send_until_settled(slot(key), sent)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        if sent.as_ref().is_err_and(RedisError::is_timeout) {
            self.map().is_doubtful = true;
        }
        sent
    }

    /// Sends a command to a node, whatever its key.
    pub(super) async fn send_to(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        self.link(node)?.send(command).await
    }

    /// The nodes that have slots, as the cluster says now.
    pub(super) async fn primaries(&self) -> Result<Vec<Node>, RedisError> {
        let version = self.map().version;
        self.ask_for_slots(version).await?;
        let mut nodes: Vec<Node> = self.map().ranges.iter().map(|range| range.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// Which node has which slot; none while any slot moves.
    pub(super) async fn layout(&self) -> Result<Option<Vec<Range>>, RedisError> {
        let mut nodes = redis::cmd("CLUSTER");
        nodes.arg("NODES");
        for node in self.primaries().await? {
            let text: String = from_redis_value(self.send_to(&node, &nodes).await?)?;
            // A node marks its own slots that come or go: `[slot->-node]`, `[slot-<-node]`.
            if text.lines().any(|line| line.contains("myself") && line.contains('[')) {
                return Ok(None);
            }
        }
        Ok(Some(self.map().ranges.clone()))
    }

    async fn send_until_settled(&self, slot: u16, sent: Sent<'_>) -> Result<Value, RedisError> {
        loop {
            let (version, is_doubtful, owner) = {
                let map = self.map();
                (map.version, map.is_doubtful, map.owner(slot))
            };
            if is_doubtful {
                self.ask_for_slots(version).await?;
                continue;
            }
            let Some(node) = owner else {
                // Nobody has it as far as is known. Where nobody has it for good, the time of the command ends this.
                self.ask_for_slots(version).await?;
                if self.map().owner(slot).is_none() {
                    sleep(PAUSE).await;
                }
                continue;
            };
            let error = match self.link(&node)?.send(sent).await {
                Err(error) => error,
                answer => return answer,
            };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    let Some(node) = named_by(&error, &node) else { return Err(error) };
                    self.map().give(slot, node);
                }
                ErrorKind::Server(ServerErrorKind::Ask) => {
                    let Some(node) = named_by(&error, &node) else { return Err(error) };
                    match self.link(&node)?.send_asking(sent).await {
                        // The move has ended, or was taken back.
                        Err(error) if error.is_cluster_error() => {}
                        answer => return answer,
                    }
                }
                _ if error.is_timeout() => return Err(error),
                _ if error.is_cluster_error() || is_of_connection(&error) => {
                    sleep(PAUSE).await;
                    self.ask_for_slots(version).await?;
                }
                _ => return Err(error),
            }
        }
    }

    /// Asks which node has which slot, unless somebody has since this version of the map.
    async fn ask_for_slots(&self, version: u64) -> Result<(), RedisError> {
        let _asking = self.asking.lock().await;
        let known: Vec<Node> = {
            let map = self.map();
            if map.version != version {
                return Ok(());
            }
            map.links.keys().cloned().collect()
        };
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let seeds = self.seeds.iter().filter_map(|seed| address(seed.addr()));
        let mut last =
            RedisError::from((ErrorKind::InvalidClientConfig, "a cluster is found by the address of a node"));
        for node in known.into_iter().chain(seeds) {
            let answer = timeout(ASKING_TIMEOUT, self.link(&node)?.send(&slots)).await;
            let answer = answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            match answer.and_then(|answer| ranges(answer, &node.0)) {
                Ok(ranges) => {
                    let mut map = self.map();
                    map.version += 1;
                    map.is_doubtful = false;
                    map.links.retain(|node, _| ranges.iter().any(|range| range.node == *node));
                    map.ranges = ranges;
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The connection to a node, with the credentials of the first seed.
    fn link(&self, node: &Node) -> Result<Arc<Link>, RedisError> {
        let mut map = self.map();
        if let Some(link) = map.links.get(node) {
            return Ok(Arc::clone(link));
        }
        let Some(seed) = self.seeds.first() else {
            return Err((ErrorKind::InvalidClientConfig, "a cluster is found by the address of a node").into());
        };
        let link = Arc::new(Link::new(Source::Server(Client::open(beside(seed, node))?)));
        map.links.insert(node.clone(), Arc::clone(&link));
        Ok(link)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        // Every change is made whole under the lock.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn owner(&self, slot: u16) -> Option<Node> {
        // The latest word comes last.
        let range = self.ranges.iter().rev().find(|range| (range.first..=range.last).contains(&slot))?;
        Some(range.node.clone())
    }

    fn give(&mut self, slot: u16, node: Node) {
        self.ranges.retain(|range| (range.first, range.last) != (slot, slot));
        self.ranges.push(Range { first: slot, last: slot, node });
    }
}

/// The address of a node as this one's, with all that goes with it.
fn beside(seed: &ConnectionInfo, (host, port): &Node) -> ConnectionInfo {
    let address = match seed.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    };
    seed.clone().set_addr(address)
}

fn address(seed: &ConnectionAddr) -> Option<Node> {
    match seed {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
        _ => None,
    }
}

/// The node that a redirection names. One without a host means the host that was asked.
fn named_by(error: &RedisError, asked: &Node) -> Option<Node> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    let host = if host.is_empty() { &asked.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

/// The answer to `CLUSTER SLOTS`: for each range its first and last slot, the primary, and replicas; for each server its
/// host, its port and more.
fn ranges(answer: Value, asked: &str) -> Result<Vec<Range>, RedisError> {
    let told: Vec<Vec<Value>> = from_redis_value(answer)?;
    told.into_iter()
        .filter(|range| range.len() > 2)
        .map(|mut range| {
            range.truncate(3);
            let (first, last, mut primary): (u16, u16, Vec<Value>) = from_redis_value(Value::Array(range))?;
            primary.truncate(2);
            let (host, port): (Option<String>, u16) = from_redis_value(Value::Array(primary))?;
            // A node that does not know its own name leaves it out.
            let host = host.filter(|host| !matches!(&**host, "" | "?")).unwrap_or_else(|| asked.to_owned());
            Ok(Range { first, last, node: (host, port) })
        })
        .collect()
}

/// The slot of a key (Redis cluster specification, "Key distribution model" and "Hash tags").
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed) % SLOTS
}

const SLOTS: u16 = 16384;

/// Between attempts while a cluster is not sure of a slot.
const PAUSE: Duration = Duration::from_millis(10);

/// How long one node may take to tell the slots.
const ASKING_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification. Fails when the tag is not looked for, or an empty one is one.
    #[test]
    fn a_key_has_the_slot_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_ne!(slot(b"foo{bar"), slot(b"bar"));
    }

    /// Fails when an older word is taken for the latest, or every redirection leaves one more.
    #[test]
    fn the_latest_word_about_a_slot_counts() {
        let node = |port| ("a".to_owned(), port);
        let mut map = Map { ranges: vec![Range { first: 0, last: 99, node: node(1) }], ..Map::default() };
        for _ in 0..2 {
            map.give(7, node(2));
            map.give(7, node(3));
        }
        assert_eq!((map.owner(7), map.owner(8), map.owner(100)), (Some(node(3)), Some(node(1)), None));
        assert_eq!(map.ranges.len(), 2);
    }
}
