//! Replies that are lost, and requests that arrive when another has been sent in their place: whatever the verb, the client
//! gets the answer of its run.

use std::num::NonZeroU16;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::{Look, Page, RecordId};
use idempotency_layer::{SharedStore, Store, UnknownOutcome};
use idempotency_tests::hooked::Verb;
use idempotency_tests::proxy::Request;

use super::behind::{Behind, CLAIM, FORGET, LOOK, SETTLE, UNEXPIRING};
use crate::replies::{CASES, Outcome, handler};
use crate::request::{Answer, keyed, layer, send, send_until};

/// What the network does to a verb.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// Its reply is lost with its connection.
    ReplyLost,
    /// Its reply does not come, on a connection that stays open.
    ReplySilent,
    /// It arrives once everything is over, and was sent again long before.
    Late,
}

fn statement(verb: Verb) -> &'static str {
    match verb {
        Verb::Claim => CLAIM,
        Verb::Forget => FORGET,
        _ => SETTLE,
    }
}

fn told(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status.as_u16(), answer.problem())
}

/// S8 and S28. Fails when `machine` fences what is sent again, and when `PostgresStore::claim` tells the claim's own id that
/// it is in flight.
#[tokio::test(flavor = "multi_thread")]
async fn a_verb_whose_reply_is_lost_or_that_arrives_late_changes_nothing_for_the_client() {
    let troubles = [Trouble::ReplyLost, Trouble::ReplySilent, Trouble::Late];
    join_all(CASES.iter().flat_map(|case| troubles.map(|trouble| suffers(case, trouble)))).await;
}

async fn suffers((verb, first, unknown, retry): &(Verb, u16, UnknownOutcome, Outcome), trouble: Trouble) {
    let case = format!("{verb:?}: {trouble:?}");
    let behind = Behind::share().await;
    let router = Router::new()
        .route("/pay", post(handler))
        .layer(layer(&SharedStore::new(behind.store().await)).unknown_outcome(*unknown))
        .with_state(StatusCode::from_u16(*first).unwrap());
    let request = Request::Runs(statement(*verb));
    let (struck, late) = match trouble {
        Trouble::ReplyLost => (Some(behind.proxy.drop_reply(request)), None),
        Trouble::ReplySilent => (Some(behind.proxy.silence_reply(request)), None),
        Trouble::Late => (None, Some(behind.proxy.hold_request(request))),
    };
    let mut answer = send(&router, keyed("/pay", "k"), "").await;
    if *verb == Verb::Claim && trouble != Trouble::ReplyLost {
        // A client waits no longer for its claim than the store for the server. It comes again.
        assert_eq!(told(&answer), (503, Some("store-unavailable")), "{case}");
        answer = send_until(&router, "k", |answer| answer.problem() != Some("in-flight")).await;
    }
    if let Some(struck) = struck {
        struck.struck().await;
    }
    assert_eq!((told(&answer), &answer.body[..]), ((*first, None), &b"attempt 1"[..]), "{case}");

    let again = send_until(&router, "k", |answer| answer.problem() != Some("in-flight")).await;
    assert_eq!(told(&again), *retry, "{case}");
    let Some(late) = late else { return };
    late.release().await;
    let after = send(&router, keyed("/pay", "k"), "").await;
    match (told(&again), again.is_replay()) {
        // It was the second attempt, and has been recorded since.
        ((201, None), false) => assert!(after.is_replay() && after.body == again.body, "{case}: {after:?}"),
        _ => assert_eq!(after, again, "{case}"),
    }
}

/// S8, for whoever asks the store without a layer, which would send again by itself. Fails when `ask` does not send again.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_asks_is_answered_although_its_first_reply_is_lost() {
    let behind = Behind::share().await;
    let store = behind.store().await;
    let lost = behind.proxy.drop_reply(Request::Runs(LOOK));
    assert!(matches!(store.look(&RecordId::from_bytes([7; 32])).await.unwrap(), Look::Absent));
    lost.struck().await;
    let lost = behind.proxy.drop_reply(Request::Runs(UNEXPIRING));
    assert_eq!(store.held(&Page::first(NonZeroU16::MIN)).await.unwrap().records, []);
    lost.struck().await;
}
