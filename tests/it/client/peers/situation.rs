//! A row of the tables: what goes wrong with one call, and what the call is.

use std::time::SystemTime;

use h2::Reason;
use idempotency_tests::provider::{Answer, Ending, Fault};

use super::super::*;
use super::peer::{Limit, Peer};
use Version::{Http1, Http2};

/// What happens to one call.
#[derive(Clone)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) version: Version,
    pub(super) trouble: Trouble,
    pub(super) counts: Counts,
    /// What is read off the clock.
    pub(super) clock: Clock,
    /// Its caller sets a key.
    pub(super) keyed: bool,
    /// Its body is a stream.
    pub(super) streams: bool,
}

/// What an attempt is known by.
#[derive(Clone, Copy)]
pub(super) enum Counts {
    /// The requests that arrive.
    Requests,
    /// The connections that are tried, where no request gets as far.
    Connections,
}

/// What goes wrong.
#[derive(Clone)]
pub(super) enum Trouble {
    /// The first requests, one each.
    Strikes(Vec<Fault>),
    /// The first request, and what comes after it is refused as a duplicate instead of replayed.
    StrikesThenRejects(Fault),
    /// The first requests, and each takes so long before its charge.
    StrikesAfter(Duration, Vec<Fault>),
    /// Every request.
    Persists(Fault),
    /// Connections are refused.
    Down,
    /// The certificate is signed by nobody.
    Untrusted,
}

/// What the time of a call is held against.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    /// The waits of the client.
    Waits,
    /// The time that the server asks for between the first attempt and the second.
    Asked(Duration),
    /// The limit that its caller sets.
    Limit(Limit),
    /// Nothing: its caller sets no limit.
    Unlimited,
}

/// A table: rows that belong together.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) peers: &'static [Peer],
    pub(super) situations: Vec<Situation>,
}

/// All of them, in the order of the document.
pub(super) fn groups() -> Vec<Group> {
    let keyed = |name, situations| Group { name, peers: &Peer::KEYED, situations };
    vec![
        keyed("nothing was done", unprocessed()),
        keyed("charged, and the answer is lost", lost()),
        keyed("the server says when", asked()),
        keyed("the answer is final, or the body is a stream", ends()),
        keyed("3 s for the call", bounded()),
        Group { name: "no key from the caller", peers: &Peer::UNKEYED, situations: unkeyed() },
    ]
}

fn row(name: &'static str, version: Version, trouble: Trouble) -> Situation {
    let (counts, clock) = (Counts::Requests, Clock::Waits);
    Situation { name, version, trouble, counts, clock, keyed: true, streams: false }
}

fn once(name: &'static str, version: Version, fault: Fault) -> Situation {
    row(name, version, Trouble::Strikes(vec![fault]))
}

fn each_time(name: &'static str, version: Version, fault: Fault) -> Situation {
    row(name, version, Trouble::Persists(fault))
}

impl Situation {
    fn by_connections(self) -> Self {
        Self { counts: Counts::Connections, ..self }
    }

    fn on(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn streaming(self) -> Self {
        Self { streams: true, ..self }
    }
}

fn unprocessed() -> Vec<Situation> {
    vec![
        row("connection refused, each time", Http1, Trouble::Down).by_connections(),
        once("connection reset when it was accepted", Http1, Fault::accepted()).by_connections(),
        once("connection reset before the charge", Http1, Fault::uncommitted(Ending::Reset)),
        once("`REFUSED_STREAM`", Http2, Fault::unread(Ending::ResetStream(Reason::REFUSED_STREAM))),
        once("`GOAWAY` of which the request is not a part", Http2, Fault::unread(Ending::GoAway(Reason::NO_ERROR))),
        once("425", Http1, Fault::unread(Answer::new(425))),
        row("certificate that nobody trusts", Http1, Trouble::Untrusted).by_connections(),
    ]
}

fn lost() -> Vec<Situation> {
    let limited = Clock::Limit(Limit::Attempt(Duration::from_secs(1)));
    vec![
        once("connection reset", Http1, Fault::committed(Ending::Reset)),
        once("connection reset, HTTP/2", Http2, Fault::committed(Ending::Reset)),
        once("connection closed", Http1, Fault::committed(Ending::Close)),
        once("connection closed, HTTP/2", Http2, Fault::committed(Ending::Close)),
        once("stream reset", Http2, Fault::committed(Ending::ResetStream(Reason::INTERNAL_ERROR))),
        once("half the head", Http1, Fault::committed(Ending::HalfHead)),
        once("half the body", Http1, Fault::committed(Ending::ShortBody)),
        each_time("half the body, each time", Http1, Fault::committed(Ending::ShortBody)),
        once("half the body, HTTP/2", Http2, Fault::committed(Ending::BreakStream(Reason::INTERNAL_ERROR))),
        once("a body of unsaid length, without its end", Http1, Fault::committed(Ending::OpenChunks)),
        once("half the body, then silence; limit of 1 s", Http1, Fault::committed(Ending::Stall)).on(limited),
        once("silence; limit of 1 s", Http1, Fault::committed(Ending::Silence)).on(limited),
        once("silence; no limit set", Http1, Fault::committed(Ending::Silence)).on(Clock::Unlimited),
        once("408 from a proxy", Http1, Fault::committed(Answer::new(408))),
        once("502 from a proxy", Http1, Fault::committed(Answer::new(502))),
        each_time("502 from a proxy, each time", Http1, Fault::committed(Answer::new(502))),
        row(
            "connection reset; the server refuses duplicates with 409",
            Http1,
            Trouble::StrikesThenRejects(Fault::committed(Ending::Reset)),
        ),
    ]
}

fn asked() -> Vec<Situation> {
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let busy = |status, after: &str| Fault::unread(Answer::new(status).header("retry-after", after));
    let sent = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let dated = Answer::new(429)
        .header("date", httpdate::fmt_http_date(sent))
        .header("retry-after", httpdate::fmt_http_date(sent + second * 2));
    vec![
        once("503, `Retry-After: 2`", Http1, busy(503, "2")).on(Clock::Asked(second * 2)),
        once("429, `Retry-After`: a date 2 s after its `Date`", Http1, Fault::unread(dated))
            .on(Clock::Asked(second * 2)),
        each_time("503, `Retry-After: 3600`, each time", Http1, busy(503, "3600")).on(Clock::Asked(hour)),
        once("409, `Retry-After: 1`: it is running", Http1, busy(409, "1")).on(Clock::Asked(second)),
    ]
}

fn ends() -> Vec<Situation> {
    let replayed = Answer::new(500).header("idempotent-replayed", "true");
    vec![
        each_time("500, replayed", Http1, Fault::unread(replayed)),
        each_time("409 of the domain", Http1, Fault::unread(Answer::new(409))),
        each_time("501", Http1, Fault::unread(Answer::new(501))),
        row("a stream, and nothing goes wrong", Http1, Trouble::Strikes(Vec::new())).streaming(),
        once("a stream, charged, connection reset", Http1, Fault::committed(Ending::Reset)).streaming(),
    ]
}

fn bounded() -> Vec<Situation> {
    let limited = Clock::Limit(Limit::Call(Duration::from_secs(3)));
    let spent =
        vec![Fault::committed(Answer::new(502)), Fault::unread(Ending::Silence), Fault::unread(Ending::Silence)];
    vec![
        each_time("silence", Http1, Fault::unread(Ending::Silence)).on(limited),
        row("502 after 2 s, then silence", Http1, Trouble::StrikesAfter(Duration::from_secs(2), spent)).on(limited),
    ]
}

fn unkeyed() -> Vec<Situation> {
    let limited = Clock::Limit(Limit::Attempt(Duration::from_secs(1)));
    let situations = vec![
        row("connection refused, each time", Http1, Trouble::Down).by_connections(),
        once("`REFUSED_STREAM`", Http2, Fault::unread(Ending::ResetStream(Reason::REFUSED_STREAM))),
        once("charged, connection reset", Http1, Fault::committed(Ending::Reset)),
        once("charged, connection closed", Http1, Fault::committed(Ending::Close)),
        once("charged, half the body", Http1, Fault::committed(Ending::ShortBody)),
        once("charged, silence; limit of 1 s", Http1, Fault::committed(Ending::Silence)).on(limited),
        once("charged, 502 from a proxy", Http1, Fault::committed(Answer::new(502))),
        each_time("charged, 502 from a proxy, each time", Http1, Fault::committed(Answer::new(502))),
    ];
    situations.into_iter().map(|situation| Situation { keyed: false, ..situation }).collect()
}
