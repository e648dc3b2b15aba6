//! Any sequence of verbs, duplicates and passing time gets from a server's store the answers that a plain model gives.
//!
//! The model and the scripts are those that the embedded stores are held to. Time passes as the server's does, so that
//! many scripts are played at once.

#[path = "../../idempotency-layer/tests/it/model/player.rs"]
mod player;
#[path = "../../idempotency-layer/tests/it/model/reference.rs"]
mod reference;
#[path = "../../idempotency-layer/tests/it/model/script.rs"]
mod script;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use idempotency_layer::conformance::Harness;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::sync::Semaphore;

/// Plays so many scripts, each on a harness of its own. The scripts are the same in every run of the test.
pub(crate) async fn agrees<H: Harness>(cases: usize, harness: impl Fn() -> H) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let scripts = script::scripts();
    let plays = (0..cases).map(|_| {
        let script = scripts.new_tree(&mut runner).unwrap().current();
        let harness = harness();
        let play = async move {
            let opening = OPENING.acquire().await.unwrap();
            drop(harness.open().await);
            drop(opening);
            player::play(&harness, &script).await.map_err(|error| (error, script))
        };
        async move {
            let _place = PLACES.acquire().await.unwrap();
            tokio::spawn(play).await.unwrap()
        }
    });
    let plays: Vec<_> = plays.collect();
    let played = stream::iter(plays).buffer_unordered(AT_ONCE);
    let disagreed: Vec<_> = played.filter_map(async |played| played.err()).collect().await;
    let (first, count) = (disagreed.first(), disagreed.len());
    assert!(count == 0, "{count} of {cases} scripts, one of them {first:#?}");
}

/// Long enough that a busy machine is not taken for a lapse.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// So many that time is not lost, and so few that none waits for the machine.
pub(crate) const AT_ONCE: usize = 32;

/// All tests together play so many at once.
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// And make the tables of so few, which is not to be waited for once time counts.
static OPENING: Semaphore = Semaphore::const_new(2);
