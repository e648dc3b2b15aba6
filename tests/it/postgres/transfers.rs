//! Transfers under fire in PostgreSQL: three racing clients for each, two banks that are killed again and again, and a
//! server that is killed beneath them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotency_tests::bank::Transfer;
use idempotency_tests::client::{self, Answer};
use idempotency_tests::failpoint::Point;
use idempotency_tests::postgres::PostgresServer;
use idempotency_tests::server::Server;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Client;
use tokio::time::{sleep, timeout};

use super::city::City;

/// So many kills of a bank must have left a key of that bank's running.
const KILLS: u32 = 60;

/// After so many kills of a bank the server is killed.
const SERVER_EVERY: u32 = 10;

/// So many transfers are under way at once.
const LANES: usize = 6;

/// Books exactly once, sum unchanged, an answer for each client and the same for all three. Fails when `complete_in` commits
/// what it has written where that is `Written::Nothing`, and when `machine::claim` runs what is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn transfers_through_two_banks_survive_sixty_kills_with_each_effect_once() {
    let server = PostgresServer::start().await;
    let city = City::at(server.url());
    let mut banks = [Doomed::start(&city, 0, None, 0).await, Doomed::start(&city, 1, None, 0).await];
    let addresses = Arc::new(Mutex::new([banks[0].url(), banks[1].url()]));
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let lanes: Vec<_> = (0..LANES)
        .map(|_| {
            let (addresses, stop, next) = (Arc::clone(&addresses), Arc::clone(&stop), Arc::clone(&next));
            tokio::spawn(lane(city.client.clone(), addresses, stop, next))
        })
        .collect();

    let mut random = StdRng::seed_from_u64(4711);
    let (mut kills, mut left_running, mut server_kills) = (0, 0, 0);
    let mut at_points: HashMap<String, u32> = HashMap::new();
    let mut points = Point::ALL.into_iter().cycle();
    let mut victim = 0;
    while left_running < KILLS {
        assert!(kills < 5 * KILLS, "{left_running} of {kills} kills have left a key running");
        banks[victim].come_to_its_end(&mut random).await;
        if kills % SERVER_EVERY == SERVER_EVERY - 1 {
            sleep(Duration::from_millis(random.random_range(0..50))).await;
            server.kill();
            server.restart().await;
            server_kills += 1;
        }
        let point = banks[victim].point;
        if banks[victim].kill(&city).await > 0 {
            left_running += 1;
            *at_points.entry(point.map_or_else(|| "anywhere".to_owned(), Point::name)).or_default() += 1;
        }
        kills += 1;
        // Only who is to be killed next stops somewhere, for the other one serves on meanwhile.
        let heir = victim;
        victim = usize::from(random.random_bool(0.5));
        let point = if victim == heir { points.next() } else { None };
        banks[heir].start_again(&city, 1 + kills, point, random.random_range(0..12)).await;
        addresses.lock().unwrap()[heir] = banks[heir].url();
    }
    // One may stand at a point.
    for (at, bank) in banks.iter_mut().enumerate() {
        bank.kill(&city).await;
        bank.start_again(&city, 0, None, 0).await;
        addresses.lock().unwrap()[at] = bank.url();
    }
    stop.store(true, Ordering::SeqCst);

    let mut answered = Vec::new();
    for lane in lanes {
        answered.extend(timeout(Duration::from_secs(60), lane).await.expect("a transfer without an answer").unwrap());
    }
    let mut effects = city.effects().await;
    for (key, answers) in &answered {
        let first = &answers[0];
        let expected = match first.status.as_u16() {
            201 => Some(1),
            402 => None,
            _ => panic!("{key}: {first:?}"),
        };
        assert_eq!(effects.remove(key), expected, "{key}: {first:?}");
        for answer in answers {
            assert_eq!((answer.status, &answer.body), (first.status, &first.body), "{key}");
        }
    }
    assert_eq!(effects, HashMap::new(), "effects of nobody's transfers");
    let running: i64 = sqlx::query_scalar(RUNNING).bind(None::<i64>).fetch_one(&city.books).await.unwrap();
    assert_eq!(running, 0);
    let transfers = answered.len();
    println!(
        "{transfers} transfers, {kills} kills, {left_running} with a running key: {at_points:?}; {server_kills} of the server"
    );
    assert!(server_kills > 0);
}

/// A bank that is killed at its point, or anywhere.
struct Doomed {
    bank: Option<Server>,
    point: Option<Point>,
    /// In milliseconds. No other bank has the same, so that the books say whose key it is.
    retention: i64,
}

impl Doomed {
    async fn start(city: &City, number: u32, point: Option<Point>, passing: u32) -> Self {
        let retention = 24 * 60 * 60 * 1000 + i64::from(number);
        let (retention_text, passing) = (retention.to_string(), passing.to_string());
        let options = [&["--retention", &retention_text, "--passing", &passing], OPTIONS].concat();
        let bank = match point {
            Some(point) => city.bank_stopping_at(point, &options).await,
            None => city.bank(&options).await,
        };
        Self { bank: Some(bank), point, retention }
    }

    async fn start_again(&mut self, city: &City, number: u32, point: Option<Point>, passing: u32) {
        *self = Self::start(city, number, point, passing).await;
    }

    fn url(&self) -> String {
        format!("{}/transfers", self.bank.as_ref().unwrap().url())
    }

    async fn come_to_its_end(&mut self, random: &mut StdRng) {
        match self.point {
            Some(_) => drop(self.bank.as_mut().unwrap().line_after("failpoint ").await),
            None => sleep(Duration::from_millis(random.random_range(20..200))).await,
        }
    }

    /// Kills it, and says how many keys it has left running.
    async fn kill(&mut self, city: &City) -> i64 {
        self.bank.take().unwrap().kill().await;
        sqlx::query_scalar(RUNNING).bind(self.retention).fetch_one(&city.books).await.unwrap()
    }
}

/// Sends one transfer after the other, each by three clients, until it is told to stop.
async fn lane(
    client: Client,
    addresses: Arc<Mutex<[String; 2]>>,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU32>,
) -> Vec<(String, [Answer; 3])> {
    let mut done = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let mut random = StdRng::seed_from_u64(u64::from(number));
        let from = random.random_range(1..=10);
        let to = (from + random.random_range(0..9)) % 10 + 1;
        let key = format!("transfer-{number}");
        let transfer = Transfer { reference: key.clone(), from, to, amount: random.random_range(1..=400) };
        let body = serde_json::to_value(&transfer).unwrap();
        let racer = |first: usize| {
            let (sent, addresses, client, key, body) = (AtomicUsize::new(first), &addresses, &client, &key, &body);
            async move {
                // To the other bank at each attempt.
                let url = || addresses.lock().unwrap()[sent.fetch_add(1, Ordering::SeqCst) % 2].clone();
                client::persist(client, url, key, body).await
            }
        };
        let answers = tokio::join!(racer(0), racer(1), racer(random.random_range(0..2)));
        done.push((key, answers.into()));
    }
    done
}

const OPTIONS: &[&str] = &["--lease", "300", "--max-attempts", "1000"];

const RUNNING: &str = "SELECT count(*) FROM idempotency_record WHERE state = 1 AND retention = coalesce($1, retention)";
