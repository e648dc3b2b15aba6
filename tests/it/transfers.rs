//! Transfers under fire: every one is sent by three racing clients while the bank is killed again and again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotency_tests::bank::{self, Transfer};
use idempotency_tests::client::{self, Answer};
use idempotency_tests::failpoint::Point;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Client;

use crate::city::City;

/// So many kills must have found a key that was running.
const KILLS: u32 = 30;

/// So many transfers are under way at once.
const LANES: usize = 6;

/// Books exactly once, sum unchanged, an answer for each client and the same for all three. Fails when `begin` commits what
/// it has begun, when `complete_in` commits the handler's effects without their record, and when `machine::claim` runs
/// what is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn transfers_survive_thirty_kills_with_each_effect_once() {
    let city = Arc::new(City::new().await);
    let address = Arc::new(Mutex::new(String::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU32::new(0));
    let options = ["--lease", "300", "--max-attempts", "1000"];

    let mut bank = city.bank(&options).await;
    address.lock().unwrap().clone_from(&bank.url().to_owned());
    let lanes: Vec<_> = (0..LANES)
        .map(|_| tokio::spawn(lane(city.client.clone(), Arc::clone(&address), Arc::clone(&stop), Arc::clone(&next))))
        .collect();

    let mut random = StdRng::seed_from_u64(4711);
    let (mut kills, mut kills_while_running) = (0, 0);
    let mut at_points: HashMap<String, u32> = HashMap::new();
    let points = Point::ALL.into_iter().map(Some).chain([None]).cycle();
    for point in points {
        if kills_while_running >= KILLS && kills >= 3 * (Point::ALL.len() as u32 + 1) {
            break;
        }
        bank.kill().await;
        bank = match point {
            Some(point) => {
                let passing = random.random_range(0..12).to_string();
                city.bank_stopping_at(point, &[&options[..], &["--passing", &passing]].concat()).await
            }
            None => city.bank(&options).await,
        };
        address.lock().unwrap().clone_from(&bank.url().to_owned());
        match point {
            Some(_) => drop(bank.line_after("failpoint ").await),
            None => tokio::time::sleep(Duration::from_millis(random.random_range(20..200))).await,
        }
        kills += 1;
        let name = point.map_or_else(|| "anywhere".to_owned(), Point::name);
        // Stopped, so that what is running now is what the kill finds: SIGKILL ends a stopped process too.
        bank.pause();
        if bank::running(&city.books).await > 0 {
            kills_while_running += 1;
            *at_points.entry(name).or_default() += 1;
        }
    }
    bank.kill().await;
    let bank = city.bank(&options).await;
    address.lock().unwrap().clone_from(&bank.url().to_owned());
    stop.store(true, Ordering::SeqCst);

    let mut transfers = 0;
    for lane in lanes {
        let done = tokio::time::timeout(Duration::from_secs(60), lane).await.expect("a transfer without an answer");
        for (key, answers) in done.unwrap() {
            transfers += 1;
            let effects = bank::effects(&city.books, &key).await;
            let [first, ..] = &answers;
            match first.status.as_u16() {
                201 => assert_eq!(effects, 1, "{key}: {first:?}"),
                402 => assert_eq!(effects, 0, "{key}: {first:?}"),
                _ => panic!("{key}: {first:?}"),
            }
            for answer in &answers {
                assert_eq!((answer.status, &answer.body), (first.status, &first.body), "{key}");
            }
        }
    }
    assert_eq!(bank::sum(&city.books).await, bank::TOTAL, "money was made or lost");
    assert_eq!(bank::running(&city.books).await, 0);
    println!("{transfers} transfers, {kills} kills, {kills_while_running} with a running key: {at_points:?}");
    assert!(kills_while_running >= KILLS);
}

/// Sends one transfer after the other, each by three clients, until it is told to stop.
async fn lane(
    client: Client,
    address: Arc<Mutex<String>>,
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
        let racer = || {
            let url = || format!("{}/transfers", address.lock().unwrap());
            client::persist(&client, url, &key, &body)
        };
        let answers = tokio::join!(racer(), racer(), racer());
        done.push((key, answers.into()));
    }
    done
}
