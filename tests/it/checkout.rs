//! The program `checkout` plays each of its scripts to one charge.

use std::process::Stdio;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use idempotency_tests::server::example;
use tokio::process::Command;
use tokio::time::timeout;

/// E3, as users see it. Fails when `machine::claim` never takes over a lease that has lapsed, or the program's service asks
/// for its charge under a random key.
#[tokio::test(flavor = "multi_thread")]
async fn each_play_ends_with_one_charge() {
    // What it prints says how it came to that, and is for whoever reads a failure.
    let plays = (0..20_u32).map(|seed| async move {
        let playing = Command::new(example("checkout"))
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let played = timeout(LONGEST, playing).await.unwrap_or_else(|_| panic!("seed {seed} takes too long")).unwrap();
        let (told, complaints) = (String::from_utf8(played.stdout).unwrap(), String::from_utf8(played.stderr).unwrap());
        assert!(played.status.success(), "seed {seed}:\n{told}{complaints}");
        let last = told.lines().last();
        assert_eq!(last, Some("1 charge, 1 order in the shop's books"), "seed {seed}:\n{told}");
    });
    stream::iter(plays).buffer_unordered(4).collect::<()>().await;
}

const LONGEST: Duration = Duration::from_secs(15);
