//! A primary, its replica and three sentinels that promote the replica, on demand or since the primary is gone.
//!
//! The sentinels take a server for gone that has not answered for [`DOWN_AFTER`], and look more often than they do by
//! default, so that a promotion takes two or three seconds.

use std::collections::HashMap;
use std::time::Duration;

use redis::cmd;

use super::{Patience, RedisServer};

/// Two servers and those that watch them.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl RedisSentinels {
    /// Starts them, and waits until each knows the others and the replica has what the primary has.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts them with further options for the two servers.
    pub async fn start_with(options: &[&str]) -> Self {
        let (primary, replica) = tokio::join!(RedisServer::start_with(options), RedisServer::start_with(options));
        let _: () = replica.command(&["REPLICAOF", "127.0.0.1", &primary.port()]).await;
        // Else it would be a primary again once it is restarted.
        let _: () = replica.command(&["CONFIG", "REWRITE"]).await;
        let patience = Patience::new();
        while !replicates(&replica, &primary).await {
            assert!(patience.lasts().await, "{} is no replica:\n{}", replica.url(), replica.log());
        }

        let (a, b, c) = tokio::join!(watching(&primary), watching(&primary), watching(&primary));
        let this = Self { servers: [primary, replica], sentinels: [a, b, c] };
        this.settled().await;
        this
    }

    /// `redis://` and the address of each sentinel.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// What the sentinels call the primary, whichever it is.
    #[must_use]
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// The two servers: first the one that was the primary at the start.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer; 2] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer; 3] {
        &self.sentinels
    }

    /// The server that the first sentinel that is there calls the primary, dead or alive.
    ///
    /// # Panics
    ///
    /// When no sentinel is there.
    pub async fn primary(&self) -> &RedisServer {
        for sentinel in &self.sentinels {
            if let Some(port) = named_by(sentinel).await {
                return self.servers.iter().find(|server| server.address().port() == port).expect("one of the two");
            }
        }
        panic!("no sentinel is there");
    }

    /// The server that is not the primary. Paused, it is cut off from it, and the primary has nobody to fail over to.
    pub async fn replica(&self) -> &RedisServer {
        self.other(self.primary().await)
    }

    /// Makes the replica the primary, while both live. When this returns, all sentinels say so and the old primary is the
    /// replica; connections to it have been closed. Gives the new primary.
    pub async fn fail_over(&self) -> &RedisServer {
        let old = self.primary().await;
        let mut command = cmd("SENTINEL");
        command.arg("FAILOVER").arg(NAME);
        // Refused while the sentinel still works on the last one, or has not yet looked at its result.
        let patience = Patience::new();
        while let Err(refused) = self.sentinels[0].query::<()>(&command).await {
            assert!(patience.lasts().await, "no failover: {refused}\n{}", self.sentinels[0].log());
        }
        let new = self.promoted_after(old).await;
        // One that still saw it as a primary would make it a replica once more, after the next failover.
        self.settled().await;
        new
    }

    /// Kills the primary, and gives it. The sentinels have yet to notice.
    pub async fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary().await;
        primary.kill();
        primary
    }

    /// Waits until the other server is the primary, for itself and for every sentinel that is there, since this one was
    /// killed or paused. This one, restarted or resumed, thinks that it is still the primary until a sentinel tells it.
    pub async fn promoted_after(&self, lost: &RedisServer) -> &RedisServer {
        let new = self.other(lost);
        let patience = Patience::new();
        // Where no sentinel is there to ask, it has to say so itself.
        while !self.is_named(new).await || !replication(new).await.contains("role:master\r\n") {
            assert!(patience.lasts().await, "{} is not promoted:\n{}", new.url(), self.sentinels[0].log());
        }
        new
    }

    /// Waits until each sentinel has seen the others, the primary, and a replica that follows it.
    async fn settled(&self) {
        let patience = Patience::new();
        for sentinel in &self.sentinels {
            while !is_settled(sentinel).await {
                assert!(patience.lasts().await, "{} does not know all:\n{}", sentinel.url(), sentinel.log());
            }
        }
    }

    /// Whether no sentinel that is there calls another server the primary.
    async fn is_named(&self, server: &RedisServer) -> bool {
        for sentinel in &self.sentinels {
            if named_by(sentinel).await.is_some_and(|port| port != server.address().port()) {
                return false;
            }
        }
        true
    }

    fn other(&self, server: &RedisServer) -> &RedisServer {
        let [a, b] = &self.servers;
        if server.address() == a.address() { b } else { a }
    }
}

async fn watching(primary: &RedisServer) -> RedisServer {
    let (name, watched) = (NAME, primary.address().port());
    let down_after = DOWN_AFTER.as_millis();
    let sentinel = RedisServer::start_as(|port| {
        let configuration = format!(
            "bind 127.0.0.1\n\
             port {port}\n\
             sentinel monitor {name} 127.0.0.1 {watched} 2\n\
             sentinel down-after-milliseconds {name} {down_after}\n\
             sentinel failover-timeout {name} 4000\n"
        );
        (configuration, vec![super::CONFIGURATION.to_owned(), "--sentinel".to_owned()])
    })
    .await;
    let _: () = sentinel.command(OFTEN).await;
    sentinel
}

/// The port of the server that a sentinel calls the primary; `None` where the sentinel is not there.
async fn named_by(sentinel: &RedisServer) -> Option<u16> {
    let named = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).clone();
    let (_, port): (String, u16) = sentinel.query(&named).await.ok()?;
    Some(port)
}

async fn is_settled(sentinel: &RedisServer) -> bool {
    let primary: HashMap<String, String> = sentinel.command(&["SENTINEL", "MASTER", NAME]).await;
    let replicas: Vec<HashMap<String, String>> = sentinel.command(&["SENTINEL", "REPLICAS", NAME]).await;
    let follows = |replica: &HashMap<String, String>| {
        replica["flags"] == "slave"
            && replica["role-reported"] == "slave"
            && replica["master-link-status"] == "ok"
            && replica["master-port"] == primary["port"]
    };
    primary["flags"] == "master"
        && primary["role-reported"] == "master"
        && primary["num-other-sentinels"] == "2"
        && replicas.len() == 1
        && replicas.iter().all(follows)
}

async fn replicates(replica: &RedisServer, primary: &RedisServer) -> bool {
    let replication = replication(replica).await;
    let port = format!("master_port:{}\r\n", primary.address().port());
    replication.contains(&port) && replication.contains("master_link_status:up\r\n")
}

/// What a server says of it; nothing where it is not there.
async fn replication(server: &RedisServer) -> String {
    server.query(cmd("INFO").arg("replication")).await.unwrap_or_default()
}

const NAME: &str = "shop";
/// How long a server does not answer before a sentinel takes it for gone.
pub const DOWN_AFTER: Duration = Duration::from_secs(1);
/// How often they look, in milliseconds. While they fail over, they look at a replica once a second whatever is said here,
/// and all this has to leave room for that:
///
/// - A replica that they last looked at five periods of PING ago, or three of INFO, is not promoted.
/// - A replica that is promoted is made a replica again by a sentinel that has not heard of it for four periods of PUBLISH.
///
/// TILT-TRIGGER is when they take their own machine for stuck, which a busy one should not be.
#[rustfmt::skip]
const OFTEN: &[&str] = &[
    "SENTINEL", "DEBUG",
    "PING-PERIOD", "500", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "1000", "ASK-PERIOD", "100", "TILT-TRIGGER", "60000",
];
