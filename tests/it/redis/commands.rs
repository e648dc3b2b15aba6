//! What the store sends to Redis: one key with each command, and nothing that this machine's clock has a part in.

use std::num::NonZeroU16;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use futures_util::StreamExt;
use http::StatusCode;
use idempotency_layer::store::{LeaseId, Page, Resolution, Write};
use idempotency_layer::{Operation, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;
use tokio::time::timeout;

use super::behind::{Behind, RENEW, SETTLE};
use crate::request::{PATIENCE, keyed, layer, send, sending};

/// Answers with the status in the request's body.
async fn mirror(State(gate): State<Gate>, _: Operation, body: String) -> StatusCode {
    gate.pass().await;
    StatusCode::from_u16(body.parse().unwrap()).unwrap()
}

/// S12 and S13. Fails when `record::first` writes when the lease ends instead of how long it lasts, when a script is given a
/// second key, and when `read.lua` is told the time instead of asking for it.
///
/// Two processes whose clocks differ cannot be had on one machine. So this sees that a clock has no way into a record: each
/// number that is sent is a code or a duration of the configuration, and the server asks itself what time it is, or keeps it
/// in the expiry.
#[tokio::test(flavor = "multi_thread")]
async fn commands_have_one_key_and_no_moment_of_this_machine_in_them() {
    let behind = Behind::start_with(&[]).await;
    let store = behind.store().await;
    let client = redis::Client::open(behind.redis.url()).unwrap();
    let mut monitor = client.get_async_monitor().await.unwrap();
    let mut said = monitor.on_message::<String>();

    let gate = Gate::closed();
    let timed = layer(&store).lease(LEASE).retention(RETENTION);
    let router = |unknown| {
        let layer = timed.clone().unknown_outcome(unknown);
        Router::new().route("/pay", any(mirror)).layer(layer).with_state(gate.clone())
    };
    let rerun = router(UnknownOutcome::Rerun);
    let run = sending(&rerun, keyed("/pay", "slow"), "201");
    let mut lines = Vec::new();
    let renewed = async {
        while !lines.last().is_some_and(|line: &String| line.contains(&RENEW.hash)) {
            lines.push(said.next().await.unwrap());
        }
    };
    timeout(PATIENCE, renewed).await.expect("a renewal");
    gate.release(1000);
    run.await.unwrap();
    for status in ["201", "400", "429", "500"] {
        for unknown in [UnknownOutcome::Rerun, UnknownOutcome::Hold] {
            for _ in 0..2 {
                send(&router(unknown), keyed("/pay", &format!("{status}-{unknown:?}")), status).await;
            }
        }
    }
    for held in store.held(&Page::first(NonZeroU16::MAX)).await.unwrap().records {
        assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
    }
    let _: () = behind.redis.command(&["ECHO", END]).await;
    let rest = async {
        while !lines.last().is_some_and(|line| line.contains(END)) {
            lines.push(said.next().await.unwrap());
        }
    };
    timeout(PATIENCE, rest).await.expect("all that was sent");

    let (of_scripts, sent): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.contains(" lua] "));
    let sent: Vec<Vec<Vec<u8>>> = sent.iter().map(|line| words(line)).collect();
    let (mut plain_claims, mut scripts, mut completions) = (0, 0, 0);
    for call in &sent {
        let (key, arguments) = match &call[..] {
            [command, key, arguments @ ..] if command == b"SET" => {
                plain_claims += 1;
                let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
                assert!(matches!(words[..], [_, b"NX", b"GET", b"PX", _]), "{call:?}");
                (key, arguments)
            }
            [command, key, arguments @ ..] if command == b"PTTL" => (key, arguments),
            [command, script, keys, key, arguments @ ..] if command.starts_with(b"EVAL") => {
                scripts += 1;
                assert_eq!(keys, b"1", "{call:?}");
                assert!(script.len() == 40 || script.starts_with(b"--"), "{call:?}");
                let completes = arguments.get(1).is_some_and(|begin| matches!(begin[..], [1, 2 | 3, _]));
                completions += usize::from(*script == SETTLE.hash.as_bytes() && completes);
                (key, arguments)
            }
            _ => continue,
        };
        assert!(key.starts_with(b"idempotency:"), "{call:?}");
        for argument in arguments {
            if argument.len() == HEAD {
                assert_eq!(argument[96..], times_of_a_first_run(), "{call:?}");
            }
            let number = std::str::from_utf8(argument).ok().and_then(|text| text.parse::<u64>().ok());
            let is_known = number
                .is_none_or(|number| number < 1000 || [LEASE, RETENTION].contains(&Duration::from_millis(number)));
            assert!(is_known, "{number:?} in {call:?}");
        }
    }
    assert!(
        plain_claims > 5 && scripts > 15 && completions > 2,
        "{plain_claims}, {scripts}, {completions}: {lines:#?}"
    );
    let asked = of_scripts.iter().filter(|line| line.ends_with("\"TIME\"")).count();
    assert_eq!(asked, scripts - completions, "a script does not ask the server for the time, or a completion does");
}

/// The end of a head: the retention, no moment of the claim, how long the lease lasts, no moment of a write, no status.
fn times_of_a_first_run() -> Vec<u8> {
    let mut times = [RETENTION.as_millis(), 0, LEASE.as_millis(), 0].map(|time| (time as u64).to_le_bytes()).concat();
    times.extend([0, 0]);
    times
}

/// The words of a command, as MONITOR quotes them.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.bytes().skip_while(|byte| *byte != b'"');
    while rest.next() == Some(b'"') {
        let mut word = Vec::new();
        loop {
            match rest.next().unwrap() {
                b'"' => break,
                b'\\' => word.push(match rest.next().unwrap() {
                    b'x' => {
                        let digits = [rest.next().unwrap(), rest.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    other => other,
                }),
                byte => word.push(byte),
            }
        }
        words.push(word);
        rest.next();
    }
    words
}

/// The numbers are no codes.
const LEASE: Duration = Duration::from_millis(1234);
const RETENTION: Duration = Duration::from_millis(987_654);

/// Bytes of a head.
const HEAD: usize = 130;

const END: &str = "that is all";
