//! A cluster of three primaries whose slots move from one to another, whole or step by step.
//!
//! A slot moves as `redis-cli --cluster reshard` moves it, and no step of that is atomic with the next:
//!
//! 1. [`begin_move`](RedisCluster::begin_move): the new owner imports the slot, the old one migrates it. The old one
//!    answers `ASK` for a key that it does not have.
//! 2. [`SlotMove::migrate_keys`]: keys go over, each at once; the half-moved slot has some of them on either side.
//! 3. [`SlotMove::finish`]: all nodes are told of the new owner. The old one answers `MOVED`.
//!
//! There are no replicas, so a node that is killed takes its slots with it until it is restarted; started with
//! `--appendonly yes` it then has its keys.

use redis::cmd;

use super::{Patience, RedisServer};
use crate::port;

/// Three nodes, each with a third of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: [RedisServer; 3],
}

impl RedisCluster {
    /// Starts them, and waits until each says that the cluster is well.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts them with further options.
    pub async fn start_with(options: &[&str]) -> Self {
        let (a, b, c) = tokio::join!(node(options), node(options), node(options));
        let nodes = [a, b, c];
        for (index, (node, [first, last])) in nodes.iter().zip(THIRDS).enumerate() {
            let _: () = node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
            // With the same epoch they would first have to settle whose is the greater.
            let _: () = node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).await;
            for other in &nodes[..index] {
                let (_, bus): (String, String) = other.command(&["CONFIG", "GET", "cluster-port"]).await;
                let _: () = node.command(&["CLUSTER", "MEET", HOST, &other.port(), &bus]).await;
            }
        }
        let patience = Patience::new();
        for node in &nodes {
            while !is_well(node).await {
                assert!(patience.lasts().await, "{} is not well:\n{}", node.url(), node.log());
            }
        }
        Self { nodes }
    }

    /// `redis://` and the address of each node.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The nodes, in the order of the slots that they had at the start.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer; 3] {
        &self.nodes
    }

    /// The slot of a key.
    pub async fn slot(&self, key: &str) -> u16 {
        self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await
    }

    /// The node that has a slot, as it says itself; of a slot that moves, the old one.
    ///
    /// # Panics
    ///
    /// When none says so, such as one that was killed.
    pub async fn owner(&self, slot: u16) -> &RedisServer {
        for node in &self.nodes {
            let seen: String = node.query(cmd("CLUSTER").arg("NODES")).await.unwrap_or_default();
            if seen.lines().any(|line| line.contains("myself") && has(line, slot)) {
                return node;
            }
        }
        panic!("no node has slot {slot}");
    }

    /// Moves a slot with its keys. When this returns, all nodes know of it.
    pub async fn move_slot(&self, slot: u16, to: &RedisServer) {
        let moving = self.begin_move(slot, to).await;
        moving.migrate_keys().await;
        moving.finish().await;
    }

    /// Begins to move a slot, whose keys are all with the old owner yet.
    pub async fn begin_move<'a>(&'a self, slot: u16, to: &'a RedisServer) -> SlotMove<'a> {
        let from = self.owner(slot).await;
        let moving = SlotMove { cluster: self, slot, from, to };
        // In this order: the old owner sends clients on from the moment when it migrates.
        moving.set(to, &["IMPORTING", &id(from).await]).await;
        moving.set(from, &["MIGRATING", &id(to).await]).await;
        moving
    }
}

/// A slot that is half moved. Dropped, it stays so.
#[derive(Debug)]
#[must_use = "a slot stays half moved until this is finished"]
pub struct SlotMove<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl SlotMove<'_> {
    /// The old owner.
    #[must_use]
    pub fn from(&self) -> &RedisServer {
        self.from
    }

    /// The new owner.
    #[must_use]
    pub fn to(&self) -> &RedisServer {
        self.to
    }

    /// Sends the keys that are left, ten at a time.
    pub async fn migrate_keys(&self) {
        while self.migrate_some(10).await > 0 {}
    }

    /// Sends at most so many keys, each of which is at any time with one of the two, and says how many there were.
    pub async fn migrate_some(&self, most: usize) -> usize {
        let list = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(self.slot).arg(most).clone();
        let keys: Vec<Vec<u8>> = self.from.query(&list).await.expect("the keys of a slot");
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg(HOST).arg(self.to.port()).arg("").arg(0).arg(TIMEOUT).arg("KEYS").arg(&keys);
            self.from.query::<()>(&migrate).await.expect("keys that migrate");
        }
        keys.len()
    }

    /// Tells all nodes that the slot has moved.
    ///
    /// # Panics
    ///
    /// When the old owner still has keys of it.
    pub async fn finish(self) {
        let new = id(self.to).await;
        // The new owner first: should it not hear of it, the old one still has the slot.
        self.set(self.to, &["NODE", &new]).await;
        self.set(self.from, &["NODE", &new]).await;
        for node in &self.cluster.nodes {
            if ![self.to, self.from].iter().any(|known| known.address() == node.address()) {
                self.set(node, &["NODE", &new]).await;
            }
        }
    }

    async fn set(&self, node: &RedisServer, state: &[&str]) {
        let slot = self.slot.to_string();
        let _: () = node.command(&[&["CLUSTER", "SETSLOT", &slot], state].concat()).await;
    }
}

async fn node(options: &[&str]) -> RedisServer {
    RedisServer::start_as(|port| {
        // By default it is the port and ten thousand, which may be another's.
        let bus = port::free().to_string();
        let mut arguments = RedisServer::arguments(port, options);
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-announce-ip", HOST];
        arguments.extend(cluster.map(str::to_owned));
        (String::new(), arguments)
    })
    .await
}

async fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).await
}

async fn is_well(node: &RedisServer) -> bool {
    let said: String = node.command(&["CLUSTER", "INFO"]).await;
    WELL.iter().all(|well| said.lines().any(|line| line == *well))
}

/// Whether a line of CLUSTER NODES names the slot among those that the node has: `5461-10922`, or one by itself. What moves
/// stands in brackets.
fn has(line: &str, slot: u16) -> bool {
    line.split(' ').skip(FIELDS_BEFORE_SLOTS).any(|slots| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}

const HOST: &str = "127.0.0.1";
const THIRDS: [[&str; 2]; 3] = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];
const WELL: [&str; 4] = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3", "cluster_size:3"];
const FIELDS_BEFORE_SLOTS: usize = 8;
/// How long keys may take to the other node, in milliseconds.
const TIMEOUT: u32 = 20_000;
