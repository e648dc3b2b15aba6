//! A server that says when to come back is not met earlier, and one that asks for too much is left at once.

use std::time::SystemTime;

use client_retry::StopReason;
use idempotency_tests::provider::{Answer, Fault, Provider};
use idempotency_tests::wire::Version;
use tokio::time::Instant;

use super::*;

/// The time between the first attempt and the second, where the first is answered like this.
async fn wait_after(version: Version, answer: Answer) -> Duration {
    let provider = Provider::start(version).await;
    provider.script([Fault::unread(answer)]);
    let response = charge(&quick_client(version), &provider).send().await.unwrap();
    assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1));
    let received = provider.received();
    received[1].arrived - received[0].arrived
}

fn busy(lines: &[(&str, &str)]) -> Answer {
    // No `Date`, unless there is one among the lines.
    lines.iter().fold(Answer::new(503), |answer, (name, value)| answer.header(name, value))
}

/// As HTTP writes it, in three ways.
fn dates(time: SystemTime) -> [String; 3] {
    let imf = httpdate::fmt_http_date(time);
    // "Sun, 06 Nov 1994 08:49:37 GMT"
    let [weekday, day, month, year, clock, _] = imf.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let long = match weekday {
        "Mon," => "Monday",
        "Tue," => "Tuesday",
        "Wed," => "Wednesday",
        "Thu," => "Thursday",
        "Fri," => "Friday",
        "Sat," => "Saturday",
        _ => "Sunday",
    };
    let obsolete = format!("{long}, {day}-{month}-{} {clock} GMT", &year[2..]);
    let asctime = format!("{} {month} {:>2} {clock} {year}", &weekday[..3], day.trim_start_matches('0'));
    [imf.clone(), obsolete, asctime]
}

/// C5. Fails when `delay` does not add what was asked, or `requested_delay` does not read one of the forms.
#[tokio::test]
async fn asked_wait_is_kept() {
    let (second, skewed) = (Duration::from_secs(1), SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
    let [imf, obsolete, asctime] = dates(skewed + second);
    let sent = httpdate::fmt_http_date(skewed);
    let with_date = |date: &str| busy(&[("date", &sent), ("retry-after", date)]);
    let answers = [
        ("seconds", busy(&[("retry-after", "1")])),
        ("milliseconds", busy(&[("retry-after-ms", "1000"), ("retry-after", "9")])),
        ("repeated", busy(&[("retry-after", "0"), ("retry-after", "1")])),
        ("a date", with_date(&imf)),
        ("an obsolete date", with_date(&obsolete)),
        ("a date of asctime", with_date(&asctime)),
    ];
    for version in Version::BOTH {
        for (what, answer) in answers.clone() {
            let waited = wait_after(version, answer).await;
            assert!(waited >= second, "{version:?} {what}: {waited:?}");
            // The rest is for a slow machine.
            assert!(waited < second * 2, "{version:?} {what}: {waited:?}");
        }
    }
}

/// C5. Fails when `requested_delay` takes garbage or the past for anything but no wait.
#[tokio::test]
async fn wait_that_cannot_be_read_is_ignored() {
    let (now, past) = (SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777), "Sun, 06 Nov 1994 08:00:00 GMT");
    let sent = httpdate::fmt_http_date(now);
    for version in Version::BOTH {
        for value in ["-1", "soon", "", "1e3", "0x3c", past] {
            let waited = wait_after(version, busy(&[("date", &sent), ("retry-after", value)])).await;
            assert!(waited < Duration::from_millis(900), "{version:?} {value:?}: {waited:?}");
        }
    }
}

/// C6. Fails when `delay` compares only with the cap, or only with what remains.
#[tokio::test]
async fn wait_that_does_not_fit_is_not_begun() {
    for version in Version::BOTH {
        for (total, value) in
            [(600, "61"), (600, "1000000000000"), (600, "99999999999999999999999"), (2, "3"), (2, "2")]
        {
            let provider = Provider::start(version).await;
            provider.always(Fault::unread(busy(&[("retry-after", value)]).body("later")));
            let retry = quick().total_timeout(Duration::from_secs(total)).build().unwrap();
            let began = Instant::now();
            let response = charge(&client(version, retry), &provider).send().await.unwrap();
            assert!(began.elapsed() < Duration::from_secs(1), "{version:?} {value}: {:?}", began.elapsed());
            assert_eq!((response.status().as_u16(), provider.received().len()), (503, 1));
            assert_eq!(report(&response).stop(), StopReason::AskedTooLong);
            assert_eq!(response.text().await.unwrap(), "later");
        }
    }
}
