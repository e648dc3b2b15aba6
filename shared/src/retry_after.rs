//! A server can ask its client to stay away for a while; [`requested_delay`] says for how long, and
//! never says less than was asked.
//!
//! - `retry-after-ms` is what OpenAI's and Azure's services send beside the standard field: a number
//!   of milliseconds. Where it can be read, it decides.
//! - `Retry-After` (RFC 9110, section 10.2.3) is a number of seconds, or one of the three forms of a
//!   date (section 5.6.7). A date counts from the response's own `Date`, so that nobody's clock has
//!   to be right; where that is missing or cannot be read, from the `now` that the caller passes.
//! - A number may have decimals, which the standard does not know for seconds and some servers send
//!   all the same. A started unit counts as a whole one.
//! - Of several lines of one field the longest wait decides: whoever put them there, none of them is
//!   met by less.
//! - A date in the past is a wait of zero. A number above 2⁶⁴ is one of 2⁶⁴ − 1.
//! - What follows none of these forms is as good as absent: a negative number, a list, an empty
//!   value, a date on the wrong day of the week.
//!
//! How long a client is willing to wait is not decided here. The wait may be longer than an `Instant`
//! can express, so compare it before adding it to one.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use http::HeaderMap;
//! use http::header::{DATE, HeaderValue, RETRY_AFTER};
//! use idempotency_shared::requested_delay;
//!
//! let mut headers = HeaderMap::new();
//! headers.insert(DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
//! headers.insert(RETRY_AFTER, HeaderValue::from_static("Sun, 06 Nov 1994 08:50:00 GMT"));
//! let now = SystemTime::UNIX_EPOCH;
//! assert_eq!(requested_delay(&headers, now), Some(Duration::from_secs(23)));
//!
//! headers.insert("retry-after-ms", HeaderValue::from_static("250"));
//! assert_eq!(requested_delay(&headers, now), Some(Duration::from_millis(250)));
//! ```

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::RETRY_AFTER_MS;

/// The wait that a response asks for; `None` when it asks for none, or not in a way that can be read.
///
/// `now` is the time at which the response arrived. It matters only to a date in a response that
/// does not say when it was sent.
#[must_use]
pub fn requested_delay(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let milliseconds = |text: &str| number(text).map(Duration::from_millis);
    let seconds_or_date = |text: &str| number(text).map(Duration::from_secs).or_else(|| until(text, headers, now));
    longest(headers, &RETRY_AFTER_MS, milliseconds).or_else(|| longest(headers, &RETRY_AFTER, seconds_or_date))
}

fn longest(headers: &HeaderMap, name: &HeaderName, read: impl Fn(&str) -> Option<Duration>) -> Option<Duration> {
    headers.get_all(name).iter().filter_map(|value| read(text(value)?)).max()
}

/// Whole units, of which the last may be only a started one.
fn number(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    // Digits fail to be a number only by being too many.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    Some(whole.saturating_add(u64::from(decimals.bytes().any(|c| c != b'0'))))
}

fn until(text: &str, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let end = date(text)?;
    let sent = headers.get(DATE).and_then(|value| date(self::text(value)?));
    Some(end.duration_since(sent.unwrap_or(now)).unwrap_or(Duration::ZERO))
}

fn date(text: &str) -> Option<SystemTime> {
    // `httpdate` takes any byte for the space before the time of day in the form of RFC 850.
    let before_time = text.strip_suffix(" GMT").and_then(|text| text.len().checked_sub(TIME_OF_DAY + 1));
    if before_time.is_some_and(|at| text.as_bytes()[at] != b' ') {
        return None;
    }
    httpdate::parse_http_date(text).ok()
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(|text| text.trim_matches([' ', '\t']))
}

/// The length of `08:49:37`.
const TIME_OF_DAY: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SENT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    const FIELDS: [HeaderName; 3] = [RETRY_AFTER, RETRY_AFTER_MS, DATE];

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn delay(lines: &[(&'static str, &str)]) -> Option<Duration> {
        requested_delay(&headers(lines), date(SENT).unwrap())
    }

    fn standard(value: &str) -> Option<Duration> {
        delay(&[("retry-after", value)])
    }

    /// Fails when `requested_delay` does not ask for a date.
    #[test]
    fn seconds_and_three_forms_of_a_date_are_read() {
        for value in [
            "23",
            " 23\t",
            "Sun, 06 Nov 1994 08:50:00 GMT",
            "Sunday, 06-Nov-94 08:50:00 GMT",
            "Sun Nov  6 08:50:00 1994",
        ] {
            assert_eq!(standard(value), Some(Duration::from_secs(23)), "{value}");
        }
    }

    /// Fails when `until` counts from `now` first.
    #[test]
    fn date_counts_from_when_the_response_was_sent() {
        // An hour behind the client.
        let sent = ("date", "Sun, 06 Nov 1994 07:49:37 GMT");
        let after = ("retry-after", "Sun, 06 Nov 1994 07:50:00 GMT");
        assert_eq!(delay(&[sent, after]), Some(Duration::from_secs(23)));
        assert_eq!(delay(&[("date", "yesterday"), after]), Some(Duration::ZERO));
    }

    /// Fails when `longest` takes `min`, or the first.
    #[test]
    fn longest_of_repeated_lines_decides() {
        let lines = [("retry-after", "1"), ("retry-after", "120"), ("retry-after", "soon"), ("retry-after", "5")];
        assert_eq!(delay(&lines), Some(Duration::from_secs(120)));
    }

    /// Fails when the two calls of `longest` change places.
    #[test]
    fn milliseconds_go_before_seconds() {
        assert_eq!(delay(&[("retry-after", "1"), ("retry-after-ms", "87")]), Some(Duration::from_millis(87)));
        assert_eq!(delay(&[("retry-after", "1"), ("retry-after-ms", "-87")]), Some(Duration::from_secs(1)));
    }

    /// Fails when `number` ignores decimals.
    #[test]
    fn started_unit_is_a_whole_one() {
        assert_eq!(delay(&[("retry-after-ms", "87.25")]), Some(Duration::from_millis(88)));
        assert_eq!(delay(&[("retry-after-ms", "87.000")]), Some(Duration::from_millis(87)));
        assert_eq!(standard("0.0000000001"), Some(Duration::from_secs(1)));
    }

    /// Fails when `until` answers a date before the response with `None`.
    #[test]
    fn past_is_now() {
        assert_eq!(standard("Sun, 06 Nov 1994 08:49:36 GMT"), Some(Duration::ZERO));
        assert_eq!(standard("0"), Some(Duration::ZERO));
    }

    /// Fails when `number` parses into a `u32`, or takes too many digits for garbage.
    #[test]
    fn absurd_numbers_saturate() {
        assert_eq!(standard("1000000000000"), Some(Duration::from_secs(1_000_000_000_000)));
        assert_eq!(standard(&"9".repeat(400)), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(standard(&format!("{}.9", u64::MAX)), Some(Duration::from_secs(u64::MAX)));
    }

    /// Fails when `is_digits` accepts the empty text, or `number` parses before it asks for digits
    /// (`+5`).
    #[test]
    fn garbage_is_absent() {
        for value in [
            "",
            " ",
            "-5",
            "+5",
            "5.",
            ".5",
            "1.5.2",
            "1e3",
            "0x10",
            "5 s",
            "5,10",
            "5, 10",
            "soon",
            "NaN",
            "inf",
            "٥",
            "1_000",
            "Sunday, 06-Nov-94:08:50:00 GMT",
        ] {
            assert_eq!(standard(value), None, "{value}");
        }
        // The sixth was a Sunday.
        assert_eq!(standard("Mon, 06 Nov 1994 08:50:00 GMT"), None);
        assert_eq!(delay(&[]), None);
    }

    /// Every day of a hundred years as each form writes it, with the day's number since 1970.
    static CALENDAR: LazyLock<HashMap<String, u64>> = LazyLock::new(|| {
        let mut calendar = HashMap::new();
        let mut number: u64 = 0;
        for year in 1970..2070 {
            let leap = year % 4 == 0;
            for (month, days) in
                MONTHS.iter().zip([31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
            {
                for day in 1..=days {
                    let weekday = WEEKDAYS[usize::try_from(number % 7).unwrap()];
                    let short = &weekday[..3];
                    calendar.insert(format!("{short}, {day:02} {month} {year} | GMT"), number);
                    calendar.insert(format!("{weekday}, {day:02}-{month}-{:02} | GMT", year % 100), number);
                    calendar.insert(format!("{short} {month} {day:2} | {year}"), number);
                    calendar.insert(format!("{short} {month} {day:02} | {year}"), number);
                    number += 1;
                }
            }
        }
        calendar
    });

    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

    /// The first day of 1970 was a Thursday.
    const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

    /// Looks for a time of the day anywhere in the text, and for the rest of it in the calendar.
    fn reference_date(text: &str) -> Option<u64> {
        let text = text.trim();
        (0..text.len().saturating_sub(7)).find_map(|at| {
            let time = text.get(at..at + 8)?;
            let day = CALENDAR.get(&format!("{}|{}", &text[..at], &text[at + 8..]))?;
            let parts: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            let digits_and_colons =
                time.char_indices().all(|(i, c)| if i % 3 == 2 { c == ':' } else { c.is_ascii_digit() });
            (digits_and_colons && parts[0] < 24 && parts[1] < 60 && parts[2] < 60)
                .then(|| day * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2])
        })
    }

    /// Reads digit by digit, in a number that cannot overflow before it is absurd.
    fn reference_number(text: &str) -> Option<u128> {
        let mut value = 0_u128;
        let mut seen_dot = false;
        let mut started = 0;
        let mut digits_since = 0;
        for c in text.trim().chars() {
            match c {
                '0'..='9' if seen_dot => started |= u128::from(c != '0'),
                '0'..='9' => value = (value * 10 + u128::from(c.to_digit(10)?)).min(u128::from(u64::MAX)),
                '.' if !seen_dot && digits_since > 0 => {
                    seen_dot = true;
                    digits_since = 0;
                    continue;
                }
                _ => return None,
            }
            digits_since += 1;
        }
        (digits_since > 0).then(|| (value + started).min(u128::from(u64::MAX)))
    }

    /// In milliseconds.
    fn reference(lines: &[(&'static str, String)], now: u64) -> Option<u128> {
        let of = |wanted| lines.iter().filter(move |(name, _)| *name == wanted).map(|(_, value)| value);
        if let Some(longest) = of("retry-after-ms").filter_map(|value| reference_number(value)).max() {
            return Some(longest);
        }
        let sent = of("date").next().and_then(|value| reference_date(value)).unwrap_or(now);
        of("retry-after")
            .filter_map(|value| {
                let date = || reference_date(value).map(|end| u128::from(end.saturating_sub(sent)));
                reference_number(value).or_else(date).map(|seconds| seconds * 1000)
            })
            .max()
    }

    fn written_date() -> impl Strategy<Value = String> {
        let real = (0..36525_u64).prop_map(|number| {
            let written: Vec<_> =
                CALENDAR.iter().filter(|(_, day)| **day == number).map(|(text, _)| text.clone()).collect();
            written
        });
        let real = real.prop_flat_map(prop::sample::select);
        // Most of these fall on another day of the week, and some in February's 31st.
        let random = (0..7_usize, 0..33_u8, 0..12_usize, 1970..2070_u16)
            .prop_map(|(w, d, m, y)| format!("{}, {d:02} {} {y} | GMT", &WEEKDAYS[w][..3], MONTHS[m]));
        let time = (0..25_u8, 0..61_u8, 0..61_u8).prop_map(|(h, m, s)| format!("{h:02}:{m:02}:{s:02}"));
        let date = prop_oneof![4 => real, 1 => random];
        let slip =
            prop::option::weighted(0.2, (any::<prop::sample::Index>(), prop::sample::select(b" ,-:xG".to_vec())));
        (date, time, slip).prop_map(|(date, time, slip)| {
            let mut date = date.replacen('|', &time, 1).into_bytes();
            if let Some((at, letter)) = slip {
                let at = at.index(date.len());
                date[at] = letter;
            }
            String::from_utf8(date).unwrap()
        })
    }

    fn line() -> impl Strategy<Value = (&'static str, String)> {
        let number = prop_oneof!["[0-9]{1,25}", "[0-9]{0,3}\\.[0-9]{0,3}", "[-+0-9. ]{0,6}", "[ -~]{0,30}"];
        let standard = prop_oneof![written_date(), number.clone()];
        let milliseconds = prop_oneof![1 => written_date(), 9 => number];
        prop_oneof![
            3 => standard.prop_map(|value| ("retry-after", value)),
            1 => milliseconds.prop_map(|value| ("retry-after-ms", value)),
            2 => written_date().prop_map(|value| ("date", value)),
        ]
    }

    proptest! {
        /// Fails with each of the mutations above.
        #[test]
        fn agrees_with_a_reader_that_tries_every_day(lines in vec(line(), 0..5), now in 0..3_200_000_000_u64) {
            let read = requested_delay(
                &headers(&lines.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>()),
                SystemTime::UNIX_EPOCH + Duration::from_secs(now),
            );
            prop_assert_eq!(read.map(|delay| delay.as_millis()), reference(&lines, now));
        }

        /// Fails when `text` expects `to_str` to succeed.
        #[test]
        fn any_bytes_are_a_delay_or_none(
            lines in vec((prop::sample::select(FIELDS.to_vec()), vec(any::<u8>(), 0..40)), 0..4),
        ) {
            let mut headers = HeaderMap::new();
            for (name, bytes) in lines {
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(name, value);
                }
            }
            prop_assert!(requested_delay(&headers, SystemTime::UNIX_EPOCH) <= Some(Duration::MAX));
        }
    }
}
