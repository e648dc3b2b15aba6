//! Faults that both versions of HTTP have: connections that are reset, closed or silent, and answers of any kind.

use std::io::ErrorKind;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::{Connection, Version};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{A_WHILE, Bare, Framed, charge, pay, statuses};
use crate::request::{PATIENCE, again_until};

/// Fails when `reset` leaves the linger time, so that it closes, and when a moment is taken for another.
#[tokio::test]
async fn a_reset_is_one_and_leaves_the_ledger_as_it_was_at_its_moment() {
    for (fault, charges) in [
        (Fault::accepted(), 0),
        (Fault::unread(Ending::Reset), 0),
        (Fault::uncommitted(Ending::Reset), 0),
        (Fault::committed(Ending::Reset), 1),
    ] {
        let one = Provider::start(Version::Http1).await;
        one.script([fault.clone()]);
        let reset = Bare::pay(&one, "a").await;
        assert_eq!(reset, (String::new(), Err(ErrorKind::ConnectionReset)), "{fault:?}");
        assert_eq!(one.ledger().len(), charges, "{fault:?}");

        let two = Provider::start(Version::Http2).await;
        two.script([fault.clone()]);
        let reset = Framed::reset(&two).await;
        assert_eq!(reset, ErrorKind::ConnectionReset, "{fault:?}");
        assert_eq!(two.ledger().len(), charges, "{fault:?}");

        for (provider, version) in [(one, Version::Http1), (two, Version::Http2)] {
            assert_eq!(pay(&provider, version, "a").await.unwrap().status(), 201, "{fault:?}");
            assert_eq!(provider.ledger().len(), 1, "{fault:?}");
        }
    }
}

/// Fails when `close` leaves out the FIN.
#[tokio::test]
async fn a_close_is_an_end_without_an_answer() {
    for (fault, charges) in [
        (Fault::unread(Ending::Close), 0),
        (Fault::uncommitted(Ending::Close), 0),
        (Fault::committed(Ending::Close), 1),
    ] {
        let one = Provider::start(Version::Http1).await;
        one.script([fault.clone()]);
        assert_eq!(Bare::pay(&one, "a").await, (String::new(), Ok(())), "{fault:?}");
        assert_eq!((one.ledger().len(), statuses(&one)), (charges, vec![None]), "{fault:?}");

        let two = Provider::start(Version::Http2).await;
        two.script([fault.clone()]);
        let mut client = Framed::connect(&two).await;
        let closed = client.fail("a").await;
        assert!(closed.is_io() && !closed.is_reset() && !closed.is_go_away(), "{closed:?}");
        assert_ne!(closed.get_io().unwrap().kind(), ErrorKind::ConnectionReset, "{fault:?}");
        assert_eq!((two.ledger().len(), statuses(&two)), (charges, vec![None]), "{fault:?}");
    }
}

/// Fails when `close` does not read on: a reset would follow.
#[tokio::test]
async fn a_close_lets_the_client_say_all_it_has_to_say() {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::unread(Ending::Close)]);
    let mut client = Bare::connect(provider.address()).await;
    client.0.write_all(b"POST /charges HTTP/1.1\r\nhost: p\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    assert_eq!(client.hear().await, (String::new(), Ok(())));
    // The first would be answered with the reset, and the second would meet it.
    for _ in 0..2 {
        client.0.write_all(b"{").await.unwrap();
    }
}

/// Fails when `unread` waits for the body.
#[tokio::test]
async fn what_strikes_unread_does_not_wait_for_the_body() {
    let provider = Provider::start(Version::Http1).await;
    provider.always(Fault::unread(Answer::new(413)));
    let mut client = Bare::connect(provider.address()).await;
    client.0.write_all(b"POST /charges HTTP/1.1\r\nhost: p\r\ncontent-length: 1000000\r\n\r\n{").await.unwrap();
    assert!(client.hear_until("\r\n\r\n").await.starts_with("HTTP/1.1 413 "));
    provider.always(Fault::unread(Ending::Reset));
    let mut client = Bare::connect(provider.address()).await;
    client.0.write_all(b"POST /charges HTTP/1.1\r\nhost: p\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
    assert_eq!(client.hear().await.1, Err(ErrorKind::ConnectionReset));
    assert_eq!((statuses(&provider), provider.ledger().len()), (vec![Some(413), None], 0));
}

/// Fails when `end` answers in the place of a silence, and when it is silent before the commit.
#[tokio::test]
async fn a_silent_provider_has_charged_and_says_nothing() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::committed(Ending::Silence), Fault::uncommitted(Ending::Silence)]);
        for arrived in 1..=2 {
            let mut client = Connection::dial(provider.address(), version).await;
            let mut answer = tokio::spawn(async move { client.fetch(charge(&arrived.to_string())).await.map(drop) });
            provider.arrived(arrived).await;
            while provider.ledger().is_empty() {
                tokio::task::yield_now().await;
            }
            assert!(timeout(A_WHILE, &mut answer).await.is_err(), "{version:?}");
            assert_eq!(provider.ledger().len(), 1, "{version:?}");
            answer.abort();
        }
        let replay = pay(&provider, version, "1").await.unwrap();
        assert!(replay.headers().contains_key("idempotent-replayed"), "{version:?}");
        assert_eq!(statuses(&provider), [None, None, Some(201)]);
    }
}

/// Fails when the delay comes before the commit, and when there is none.
#[tokio::test]
async fn a_late_answer_follows_its_commit() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let late = |delay| Fault::committed(Ending::Late(delay));
        provider.script([late(Duration::from_hours(1)), late(A_WHILE)]);
        let mut first = Connection::dial(provider.address(), version).await;
        let waiting = tokio::spawn(async move { first.fetch(charge("a")).await.map(drop) });
        let committed = async {
            while provider.ledger().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, committed).await.expect("a commit");
        let begun = Instant::now();
        let replay = pay(&provider, version, "a").await.unwrap();
        assert_eq!(replay.headers()["idempotent-replayed"], "true", "{version:?}");
        assert!(begun.elapsed() >= A_WHILE && !waiting.is_finished(), "{version:?}");
        assert_eq!(statuses(&provider), [None, Some(201)], "{version:?}");
        waiting.abort();
    }
}

/// Fails when a stalled connection is closed, and when it has its whole body.
#[tokio::test]
async fn a_stalled_answer_has_half_its_body_and_stays_open() {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(Ending::Stall)]);
    let mut client = Bare::connect(provider.address()).await;
    client.send("a").await.unwrap();
    let head = client.hear_until("\r\n\r\n").await;
    assert!(head.contains("content-length: 4") && !head.contains('}'), "{head}");
    assert!(client.is_silent().await);

    let provider = Provider::start(Version::Http2).await;
    provider.script([Fault::committed(Ending::Stall)]);
    let mut client = Framed::connect(&provider).await;
    let mut body = client.send("a").await.await.unwrap().into_body();
    let half = body.data().await.unwrap().unwrap();
    assert!(half.starts_with(b"{") && !half.ends_with(b"}"));
    assert!(timeout(A_WHILE, body.data()).await.is_err());
    assert_eq!((provider.ledger().len(), statuses(&provider)), (1, vec![Some(201)]));
}

/// Fails when `header` replaces those of its name, when `streamed` declares a length, and when `end` takes an answer for the
/// provider's own.
#[tokio::test]
async fn an_answer_has_any_status_headers_and_body_before_and_after_the_commit() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let busy = Answer::new(429)
            .header("retry-after", "1")
            .header("retry-after", "soon")
            .header("retry-after-ms", "1500")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let failed = Answer::new(503).body(vec![b'x'; 200 * 1024]);
        let gateway = Answer::new(502).body("bad gateway").streamed();
        provider.script([
            Fault::uncommitted(busy),
            Fault::uncommitted(failed),
            Fault::committed(gateway),
            Fault::committed(Answer::redirect(307, "http://elsewhere.test/charges")),
        ]);
        let mut client = Connection::dial(provider.address(), version).await;
        let busy = client.fetch(charge("a")).await.unwrap();
        assert_eq!(busy.status(), 429);
        let lines: Vec<_> = busy.headers().get_all("retry-after").iter().collect();
        assert_eq!(lines, ["1", "soon"]);
        assert_eq!(busy.headers()["retry-after-ms"], "1500");
        assert_eq!(busy.headers()["date"], "Sun, 06 Nov 1994 08:49:37 GMT");

        let failed = client.fetch(charge("a")).await.unwrap();
        assert_eq!((failed.status().as_u16(), failed.body().data.len()), (503, 200 * 1024));
        assert_eq!(failed.headers()["content-length"], "204800");
        assert_eq!(provider.ledger().len(), 0);

        let gateway = client.fetch(charge("a")).await.unwrap();
        assert_eq!((gateway.status().as_u16(), &gateway.body().data[..]), (502, &b"bad gateway"[..]));
        assert!(!gateway.headers().contains_key("content-length"), "{version:?}");
        assert_eq!(provider.ledger().len(), 1);

        let redirect = client.fetch(charge("a")).await.unwrap();
        assert_eq!(
            (redirect.status().as_u16(), &redirect.headers()["location"]),
            (307, &"http://elsewhere.test/charges".parse().unwrap())
        );
        assert_eq!(client.fetch(charge("a")).await.unwrap().headers()["idempotent-replayed"], "true");
        assert_eq!((provider.ledger().len(), provider.connections()), (1, 1));
    }
}

/// Fails when `always` strikes once, when a `None` in a script takes no turn, and when `mend` leaves what was armed.
#[tokio::test]
async fn each_fault_of_a_script_strikes_one_request() {
    let provider = Provider::start(Version::Http1).await;
    let mut client = Connection::dial(provider.address(), Version::Http1).await;
    let busy = || Fault::uncommitted(Answer::new(503));
    provider.script([Some(busy()), None, Some(busy())]);
    for status in [503, 201, 503, 201] {
        assert_eq!(client.fetch(charge("a")).await.unwrap().status(), status);
    }
    provider.always(busy());
    for _ in 0..3 {
        assert_eq!(client.fetch(charge("a")).await.unwrap().status(), 503);
    }
    provider.mend();
    assert_eq!(client.fetch(charge("a")).await.unwrap().status(), 201);
    provider.script([None, Some(Fault::accepted())]);
    assert_eq!(pay(&provider, Version::Http1, "a").await.unwrap().status(), 201);
    pay(&provider, Version::Http1, "a").await.unwrap_err();
}

/// Fails when `down` leaves the connections, or the listener; when `up` takes another port; and when handlers end with their
/// connections.
#[tokio::test]
async fn a_provider_that_is_down_refuses_and_finishes_what_it_has_begun() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let gate = provider.holds();
        let mut client = Connection::dial(provider.address(), version).await;
        let cut = tokio::spawn(async move { client.fetch(charge("a")).await.map(drop) });
        gate.entered().await;
        provider.down().await;
        timeout(PATIENCE, cut).await.expect("a connection left open").unwrap().unwrap_err();
        let refused = TcpStream::connect(provider.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        gate.release(1);
        provider.up().await;
        let replay = async || pay(&provider, version, "a").await.unwrap();
        let replay = again_until(replay, |answer| answer.status() != 409).await;
        assert_eq!(replay.headers()["idempotent-replayed"], "true", "{version:?}");
        assert_eq!(provider.ledger().len(), 1, "{version:?}");
    }
}

/// Fails when `toil` does not sleep, or on another clock than tokio's.
#[tokio::test(start_paused = true)]
async fn work_takes_its_time_on_the_clock_of_tokio() {
    let provider = Provider::start(Version::Http1).await;
    provider.work_for(Duration::from_secs(12));
    let begun = Instant::now();
    let real = std::time::Instant::now();
    let mut stream = Bare::connect(provider.address()).await;
    stream.send("a").await.unwrap();
    assert!(stream.hear_until("\r\n\r\n").await.starts_with("HTTP/1.1 201 "));
    assert!(begun.elapsed() >= Duration::from_secs(12));
    assert!(real.elapsed() < Duration::from_secs(12));
}

/// Fails when `check` takes the two versions for one.
#[tokio::test]
async fn a_fault_of_the_other_version_is_refused() {
    for (version, ending) in
        [(Version::Http1, Ending::GoAway(h2::Reason::NO_ERROR)), (Version::Http2, Ending::HalfHead)]
    {
        let provider = Provider::start(version).await;
        let asked = tokio::spawn(async move { provider.script([Fault::committed(ending)]) });
        let refused = asked.await.unwrap_err().into_panic();
        let said = refused.downcast_ref::<String>().unwrap();
        assert!(said.contains("does not exist on"), "{said}");
    }
}

/// Fails when `check` does not ask for the moment.
#[tokio::test]
async fn a_fault_of_another_moment_is_refused() {
    for fault in [
        Fault::uncommitted(Ending::Stall),
        Fault::committed(Ending::GoAway(h2::Reason::NO_ERROR)),
        Fault::committed(Ending::ResetStream(h2::Reason::REFUSED_STREAM)),
    ] {
        let provider = Provider::start(Version::Http2).await;
        let asked = tokio::spawn(async move { provider.always(fault) });
        let refused = asked.await.unwrap_err().into_panic();
        let said = refused.downcast_ref::<String>().unwrap();
        assert!(said.contains("at the moment"), "{said}");
    }
}

/// Fails when a HEAD gets a body over HTTP/2.
#[tokio::test]
async fn a_head_has_no_body() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let mut client = Connection::dial(provider.address(), version).await;
        let head = Request::head("http://provider/charges").body(Full::default()).unwrap();
        let answer = client.fetch(head).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.body().data.len()), (200, 0), "{version:?}");
    }
}
