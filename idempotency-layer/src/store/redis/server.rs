//! What a store talks to: one server, the primary that sentinels name, a cluster, or a connection that was given.

use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, RedisError, Value, from_redis_value};

use super::link::{Link, exchange};

/// The server or servers of a store.
pub(super) enum Server {
    Linked(Link),
    Cluster(ClusterConnection),
    Given(MultiplexedConnection),
}

/// One server of those that have records.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The only one.
    Only,
    /// A primary of the cluster.
    At { host: String, port: u16 },
}

impl Server {
    /// Sends a command to the server that has its key.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Linked(link) => link.send(command).await,
            Self::Cluster(connection) => exchange(&mut connection.clone(), command).await,
            Self::Given(connection) => exchange(&mut connection.clone(), command).await,
        }
    }

    /// Sends a command to one of the [`nodes`](Self::nodes).
    pub(super) async fn send_to(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        match (self, node) {
            (Self::Cluster(connection), Node::At { host, port }) => {
                let node = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                connection.clone().route_command(command.clone(), RoutingInfo::SingleNode(node)).await?.extract_error()
            }
            _ => self.send(command).await,
        }
    }

    /// The servers that have records.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, RedisError> {
        let Self::Cluster(connection) = self else { return Ok(vec![Node::Only]) };
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer = exchange(&mut connection.clone(), &slots).await?;
        // Each range: first slot, last slot, the primary, its replicas; a server: host, port, and more.
        let ranges: Vec<Vec<Value>> = from_redis_value(answer)?;
        let mut nodes: Vec<(String, u16)> = Vec::new();
        for primary in ranges.into_iter().filter_map(|range| range.into_iter().nth(2)) {
            let mut parts: Vec<Value> = from_redis_value(primary)?;
            parts.truncate(2);
            let node: (String, u16) = from_redis_value(Value::Array(parts))?;
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Ok(nodes.into_iter().map(|(host, port)| Node::At { host, port }).collect())
    }
}
