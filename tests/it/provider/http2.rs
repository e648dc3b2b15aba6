//! Streams and connections of HTTP/2 that are refused, reset or taken away, as a client sees their frames.

use h2::Reason;
use idempotency_tests::provider::{Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use tokio::time::timeout;

use super::{Framed, statuses};
use crate::request::PATIENCE;

/// Fails when the stream is answered or reset for another reason, and when its reset takes the connection with it.
#[tokio::test]
async fn a_stream_that_is_reset_leaves_its_connection() {
    for (fault, reason, charges) in [
        (Fault::unread(Ending::ResetStream(Reason::REFUSED_STREAM)), Reason::REFUSED_STREAM, 0),
        (Fault::uncommitted(Ending::ResetStream(Reason::REFUSED_STREAM)), Reason::REFUSED_STREAM, 0),
        (Fault::uncommitted(Ending::ResetStream(Reason::CANCEL)), Reason::CANCEL, 0),
        (Fault::committed(Ending::ResetStream(Reason::INTERNAL_ERROR)), Reason::INTERNAL_ERROR, 1),
    ] {
        let provider = Provider::start(Version::Http2).await;
        provider.script([fault.clone()]);
        let mut client = Framed::connect(&provider).await;
        let reset = client.fail("a").await;
        assert!(reset.is_reset() && reset.is_remote(), "{fault:?}: {reset:?}");
        assert_eq!((reset.reason(), provider.ledger().len()), (Some(reason), charges), "{fault:?}");
        let again = client.send("a").await.await.unwrap();
        assert_eq!((again.status().as_u16(), provider.connections()), (201, 1), "{fault:?}");
        assert_eq!((provider.ledger().len(), statuses(&provider)), (1, vec![None, Some(201)]), "{fault:?}");
    }
}

/// Fails when the frame names the struck stream as processed, which would get no answer, and when the connection is closed
/// behind it.
#[tokio::test]
async fn going_away_passes_over_what_comes_after_and_answers_what_came_before() {
    let provider = Provider::start(Version::Http2).await;
    provider.script([None, Some(Fault::unread(Ending::GoAway(Reason::NO_ERROR)))]);
    let gate = provider.holds();
    let mut client = Framed::connect(&provider).await;
    let before = client.send("before").await;
    gate.entered().await;
    let (struck, after) = (client.send("struck").await, client.send("after").await);
    for passed_over in [struck, after] {
        let gone = timeout(PATIENCE, passed_over).await.expect("a failure").unwrap_err();
        assert!(gone.is_go_away() && gone.is_remote(), "{gone:?}");
        assert_eq!(gone.reason(), Some(Reason::NO_ERROR));
    }
    gate.release(3);
    assert_eq!(before.await.unwrap().status(), 201);
    client.ended().await.unwrap();
    assert_eq!((provider.ledger().len(), statuses(&provider)), (1, vec![Some(201), None]));
}

/// Fails when the first stream of a connection is named as processed.
#[tokio::test]
async fn a_connection_may_go_away_before_its_first_stream() {
    let provider = Provider::start(Version::Http2).await;
    provider.script([Fault::unread(Ending::GoAway(Reason::NO_ERROR))]);
    let gone = Framed::connect(&provider).await.fail("a").await;
    assert!(gone.is_go_away() && gone.is_remote(), "{gone:?}");
    assert_eq!(provider.ledger().len(), 0);
    assert_eq!(Framed::connect(&provider).await.send("a").await.await.unwrap().status(), 201);
}

/// Fails when the stream is reset before its half was written, which drops it.
#[tokio::test]
async fn a_broken_stream_has_half_its_body_and_a_reason() {
    for reason in [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::NO_ERROR] {
        let provider = Provider::start(Version::Http2).await;
        provider.script([Fault::committed(Ending::BreakStream(reason))]);
        let mut client = Framed::connect(&provider).await;
        let (came, broken) = client.break_off("a").await;
        assert!(came > 0 && broken.is_reset() && broken.is_remote(), "{broken:?}");
        assert_eq!((broken.reason(), provider.ledger().len()), (Some(reason), 1));
        assert_eq!(client.send("a").await.await.unwrap().headers()["idempotent-replayed"], "true");
    }
}

/// Fails when the connection goes before the half was written, and when it is closed without a frame.
#[tokio::test]
async fn a_broken_connection_has_half_a_body_and_a_reason() {
    for (reason, seen) in [(Reason::NO_ERROR, None), (Reason::INTERNAL_ERROR, Some(Reason::INTERNAL_ERROR))] {
        let provider = Provider::start(Version::Http2).await;
        provider.script([Fault::committed(Ending::BreakConnection(reason))]);
        let mut client = Framed::connect(&provider).await;
        let (came, broken) = client.break_off("a").await;
        // The stream is not above the last that is processed, so that it ends as the connection does.
        assert!(came > 0 && broken.is_io(), "{broken:?}");
        let ended = client.ended().await;
        assert_eq!(ended.err().and_then(|error| error.reason()), seen);
        assert_eq!((provider.ledger().len(), statuses(&provider)), (1, vec![Some(201)]));
    }
}
