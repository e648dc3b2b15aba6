//! The Redis servers that tests stand on: they come back where they were, and none outlives its test.

use std::path::Path;
use std::time::{Duration, Instant};

use idempotency_tests::redis::{RedisCluster, RedisSentinels, RedisServer};
use idempotency_tests::server::Server;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use redis::cluster::ClusterClient;
use redis::cmd;
use tokio::sync::watch;
use tokio::time::timeout;

/// Fails when the keeper empties the folder in `stop`, and when it keeps the log of the earlier start.
#[tokio::test]
async fn a_killed_and_restarted_server_has_its_port_and_its_data() {
    let redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let (url, id) = (redis.url(), redis.id());
    let _: () = redis.command(&["SET", "k", "v"]).await;
    redis.kill();
    assert!(is_gone(id));
    redis.restart().await;
    assert_eq!((redis.url(), redis.command(&["GET", "k"]).await), (url, "v".to_owned()));
    assert_ne!(redis.id(), id);
}

/// Fails when `pause` sends SIGCONT.
#[tokio::test]
async fn a_paused_server_answers_once_it_is_resumed() {
    let redis = RedisServer::start().await;
    redis.pause();
    let set = ["SET", "k", "v"];
    let mut answer = Box::pin(redis.command::<String>(&set));
    let early = timeout(Duration::from_millis(50), &mut answer).await;
    assert!(early.is_err(), "a paused server has answered {early:?}");
    redis.resume();
    assert_eq!(answer.await, "OK");
}

/// Fails when the keeper leaves its loop without `stop`, and when it leaves the folder.
#[tokio::test]
async fn a_server_does_not_outlive_its_handle() {
    let redis = RedisServer::start().await;
    let (id, folder) = (redis.id(), redis.folder().to_owned());
    assert!(folder.exists());
    drop(redis);
    assert!(is_gone(id));
    assert!(!folder.exists());
}

/// Fails when `Kept` does not wait for its shell in `drop`. (Where `stop` sends SIGTERM, which waits in a process that
/// stands still, it hangs.)
#[test]
fn a_paused_server_does_not_outlive_a_test_that_panics() {
    let panicked = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let redis = RedisServer::start().await;
            redis.pause();
            std::panic::panic_any(redis.id());
        });
    });
    let id = *panicked.join().unwrap_err().downcast::<Pid>().unwrap();
    assert!(is_gone(id));
}

/// Fails when the keeper ignores the end of its standard input: `while :; do read -r order`.
#[tokio::test]
async fn a_server_does_not_outlive_a_process_that_is_killed() {
    let mut orphan = Server::start(Path::new(env!("CARGO_BIN_EXE_orphan")), ["redis"]).await;
    let id = Pid::from_raw(orphan.line_after("server ").await.parse().unwrap());
    assert!(!is_gone(id));
    orphan.kill().await;
    // Nobody waits for it any more but its keeper.
    let killed = Instant::now();
    while !is_gone(id) {
        assert!(killed.elapsed() < Duration::from_secs(20), "the server lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Fails when `fail_over` returns before the sentinels are settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_on_demand_swaps_primary_and_replica_and_keeps_the_data() {
    let sentinels = RedisSentinels::start().await;
    for _ in 0..2 {
        let (old, heir) = (sentinels.primary().await.url(), sentinels.replica().await.url());
        assert_ne!(old, heir);
        let mut connection = sentinels.primary().await.connect().await.unwrap();
        // Replication is asynchronous; this waits until the one replica has it.
        let (written, replicas): (i64, i64) =
            redis::pipe().cmd("INCR").arg("k").cmd("WAIT").arg(1).arg(0).query_async(&mut connection).await.unwrap();
        assert_eq!(replicas, 1);
        let new = sentinels.fail_over().await;
        assert_eq!((new.url(), sentinels.replica().await.url()), (heir, old));
        assert_eq!(new.command::<i64>(&["GET", "k"]).await, written);
        let refused = sentinels.replica().await.query::<()>(cmd("SET").arg("k").arg(0)).await.unwrap_err();
        assert_eq!(refused.code(), Some("READONLY"));
    }
}

/// Fails when `promoted_after` does not ask the sentinels.
#[tokio::test(flavor = "multi_thread")]
async fn the_replica_of_a_killed_primary_is_promoted_and_the_restarted_one_follows_it() {
    let sentinels = RedisSentinels::start().await;
    let lost = sentinels.kill_primary().await;
    let new = sentinels.promoted_after(lost).await;
    assert_eq!(sentinels.primary().await.url(), new.url());
    let _: () = new.command(&["SET", "k", "v"]).await;
    lost.restart().await;
    // It has nothing on disk: that it has the value means that it follows. A sentinel that makes it a replica closes its
    // connections, maybe this one.
    let follows = async {
        while lost.query::<Option<String>>(cmd("GET").arg("k")).await.ok().flatten().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), follows).await.unwrap();
}

/// Fails when `migrate_keys` sends one batch only, when `finish` leaves out the old owner, and when `begin_move` has the new
/// owner not import the slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_with_its_keys_while_a_client_of_the_cluster_reads() {
    let cluster = RedisCluster::start().await;
    let client = ClusterClient::new(cluster.urls()).unwrap();
    let mut connection = client.get_async_connection().await.unwrap();
    let slot = cluster.slot("{shop}").await;
    for index in 0..25 {
        let _: () = cmd("SET").arg(format!("{{shop}}{index}")).arg("v").query_async(&mut connection).await.unwrap();
    }
    let reads = watch::Sender::new(0_u64);
    let reading = tokio::spawn({
        let (reads, mut connection) = (reads.clone(), connection.clone());
        async move {
            // The last that is sent over, and one of those that are sent first.
            for index in [24, 0].into_iter().cycle() {
                let value = cmd("GET").arg(format!("{{shop}}{index}")).query_async::<String>(&mut connection).await;
                assert_eq!(value.unwrap(), "v");
                reads.send_modify(|reads| *reads += 1);
            }
        }
    });
    // One read may have begun before; of four more, each key has had one since.
    let is_read = async || {
        let enough = *reads.borrow() + 4;
        timeout(Duration::from_secs(20), reads.subscribe().wait_for(|reads| *reads >= enough)).await.unwrap().unwrap();
    };

    for _ in 0..3 {
        let from = cluster.owner(slot).await.url();
        let to = cluster.nodes().iter().find(|node| node.url() != from).unwrap();
        let moving = cluster.begin_move(slot, to).await;
        is_read().await;
        assert_eq!(moving.migrate_some(10).await, 10);
        is_read().await;
        moving.migrate_keys().await;
        is_read().await;
        assert_eq!((moving.from().url(), cluster.owner(slot).await.url()), (from.clone(), from));
        moving.finish().await;
        is_read().await;
        assert_eq!(cluster.owner(slot).await.url(), to.url());
        assert_eq!(to.command::<u32>(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).await, 25);
    }
    assert!(!reading.is_finished());
    reading.abort();
}

/// Fails when `begin_move` does not migrate the slot, and when `finish` names the old owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_moved_slot_answers_ask_and_a_moved_one_moved() {
    let cluster = RedisCluster::start().await;
    let slot = cluster.slot("k").await;
    let from = cluster.owner(slot).await;
    let others = cluster.nodes().iter().filter(|node| node.url() != from.url()).collect::<Vec<_>>();
    let moving = cluster.begin_move(slot, others[0]).await;
    let refusal = async |node: &RedisServer| {
        let refused = node.query::<Option<String>>(cmd("GET").arg("k")).await.unwrap_err();
        let (address, _) = refused.redirect_node().map(|(address, slot)| (address.to_owned(), slot)).unwrap();
        (refused.code().unwrap().to_owned(), address)
    };
    assert_eq!(refusal(from).await, ("ASK".to_owned(), others[0].address().to_string()));
    moving.finish().await;
    for node in [from, others[1]] {
        assert_eq!(refusal(node).await, ("MOVED".to_owned(), others[0].address().to_string()));
    }
}

/// The compiler tests it. Fails when what waits for a server asks it through an `AsyncFnMut`.
#[test]
fn servers_may_be_in_a_static_and_each_task_may_wait_for_them() {
    fn is_static<T: Send + Sync + 'static>() {}
    fn is_sent<T: Send>(_: T) {}

    is_static::<(RedisServer, RedisSentinels, RedisCluster)>();
    let _compiled =
        |server: &'static RedisServer, sentinels: &'static RedisSentinels, cluster: &'static RedisCluster| {
            is_sent((RedisServer::start(), server.restart(), server.command::<()>(&[])));
            is_sent((RedisSentinels::start(), sentinels.fail_over(), sentinels.promoted_after(server)));
            is_sent((RedisCluster::start(), cluster.move_slot(0, server)));
        };
}

fn is_gone(id: Pid) -> bool {
    kill(id, None) == Err(Errno::ESRCH)
}
