//! What a store talks to: one primary, a cluster, or a connection that was given.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use super::cluster::{self, Cluster};
use super::link::{Link, Sent};

/// The server or servers of a store.
pub(super) enum Server {
    Linked(Link),
    Cluster(Cluster),
    Given(MultiplexedConnection),
}

/// One server of those that have records.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The only one.
    Only,
    /// A primary of the cluster.
    Of(cluster::Node),
}

impl Server {
    /// Sends to the server that has this key.
    pub(super) async fn send(&self, key: &[u8], sent: impl Into<Sent<'_>>) -> Result<Value, RedisError> {
        let sent = sent.into();
        match self {
            Self::Linked(link) => link.send(sent).await,
            Self::Cluster(cluster) => cluster.send(key, sent).await,
            Self::Given(connection) => sent.over(&mut connection.clone()).await,
        }
    }

    /// Sends a command to one of the [`nodes`](Self::nodes).
    pub(super) async fn send_to(&self, node: &Node, command: &Cmd) -> Result<Value, RedisError> {
        match (self, node) {
            (Self::Cluster(cluster), Node::Of(node)) => cluster.send_to(node, command).await,
            _ => self.send(&[], command).await,
        }
    }

    /// What says, asked before and after, that no record has gone from one server to another meanwhile; none where some may
    /// be going.
    pub(super) async fn layout(&self) -> Result<Option<Vec<cluster::Range>>, RedisError> {
        match self {
            Self::Cluster(cluster) => cluster.layout().await,
            Self::Linked(_) | Self::Given(_) => Ok(Some(Vec::new())),
        }
    }

    /// The servers that have records.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, RedisError> {
        match self {
            Self::Cluster(cluster) => Ok(cluster.primaries().await?.into_iter().map(Node::Of).collect()),
            Self::Linked(_) | Self::Given(_) => Ok(vec![Node::Only]),
        }
    }
}
