//! What a provider makes of keys, and what it remembers.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use idempotency_tests::provider::{Charge, Provider};
use idempotency_tests::wire::{Connection, Version};
use serde_json::{Value, json};

use super::{PAYLOAD, charge, pay, statuses};

/// Fails when `again` leaves out `replayed`, and when `commit` does not keep the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_charges_once_and_its_answer_is_given_again() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let first = pay(&provider, version, "a").await.unwrap();
        assert_eq!(first.status(), 201);
        assert!(!first.headers().contains_key("idempotent-replayed"));
        let body: Value = serde_json::from_slice(&first.body().data).unwrap();
        assert_eq!(body, json!({ "charge": "ch_1", "amount": 1050, "currency": "EUR" }));

        let again = pay(&provider, version, "a").await.unwrap();
        assert_eq!((again.status(), &again.body().data), (first.status(), &first.body().data));
        assert_eq!(again.headers()["idempotent-replayed"], "true");
        assert_eq!(provider.ledger(), [Charge { key: Some("a".into()), amount: 1050 }]);
    }
}

/// Fails when `claim` does not insert the key, so that the second charges too.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_at_work_is_told_to_come_again() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let gate = provider.holds();
        let mut client = Connection::dial(provider.address(), version).await;
        let first = tokio::spawn(async move { client.fetch(charge("a")).await });
        gate.entered().await;
        let meanwhile = pay(&provider, version, "a").await.unwrap();
        assert_eq!((meanwhile.status().as_u16(), &meanwhile.headers()["retry-after"]), (409, &"1".parse().unwrap()));
        assert_eq!(provider.ledger().len(), 0);
        gate.release(1);
        assert_eq!(first.await.unwrap().unwrap().status(), 201);
        assert_eq!((provider.ledger().len(), statuses(&provider)), (1, vec![Some(201), Some(409)]));
    }
}

/// Fails when `handled` claims after the work.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_at_once_one_charges() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let gate = provider.holds();
        let address = provider.address();
        let pay =
            move || async move { Connection::dial(address, version).await.fetch(charge("a")).await.unwrap().status() };
        let requests: Vec<_> = (0..16).map(|_| tokio::spawn(pay())).collect();
        gate.entered().await;
        provider.arrived(16).await;
        gate.release(16);
        let mut succeeded = 0;
        for request in requests {
            match request.await.unwrap().as_u16() {
                201 => succeeded += 1,
                status => assert_eq!(status, 409),
            }
        }
        // Some may have come after the commit, and got a replay.
        assert!(succeeded >= 1);
        assert_eq!((provider.ledger().len(), gate.entries(), provider.connections()), (1, 1, 16));
    }
}

/// Fails when `again` does not compare the payloads, and when a payload that is refused is kept.
#[tokio::test]
async fn another_payload_under_a_key_is_refused() {
    let provider = Provider::start(Version::Http1).await;
    let mut client = Connection::dial(provider.address(), Version::Http1).await;
    let other = |body: &'static str| charge("a").map(|_| Full::from(body));
    for (request, status) in [
        (other("{}"), 400),
        (charge("a"), 201),
        (other(r#"{"amount":1051,"currency":"EUR"}"#), 422),
        (charge("a"), 201),
    ] {
        assert_eq!(client.fetch(request).await.unwrap().status(), status);
    }
    assert_eq!((provider.ledger().len(), provider.connections()), (1, 1));
}

/// Fails when `claim` takes no key for one that all share.
#[tokio::test]
async fn without_a_key_each_request_charges() {
    let provider = Provider::start(Version::Http1).await;
    for charges in 1..=2 {
        let mut client = Connection::dial(provider.address(), Version::Http1).await;
        let unkeyed = Request::post("http://provider/charges").body(PAYLOAD.into()).unwrap();
        assert_eq!(client.fetch(unkeyed).await.unwrap().status(), 201);
        assert_eq!(provider.ledger(), vec![Charge { key: None, amount: 1050 }; charges]);
    }
}

/// Fails when `claim` does not ask what the provider makes of keys.
#[tokio::test]
async fn a_provider_that_ignores_keys_charges_for_each() {
    let provider = Provider::start(Version::Http1).await;
    provider.ignores_keys();
    for charges in 1..=2 {
        assert_eq!(pay(&provider, Version::Http1, "a").await.unwrap().status(), 201);
        assert_eq!(provider.ledger().len(), charges);
    }
}

/// Fails when `again` replays for a provider that rejects.
#[tokio::test]
async fn a_provider_that_rejects_duplicates_says_nothing_of_coming_again() {
    let provider = Provider::start(Version::Http2).await;
    provider.rejects_duplicates();
    assert_eq!(pay(&provider, Version::Http2, "a").await.unwrap().status(), 201);
    let rejected = pay(&provider, Version::Http2, "a").await.unwrap();
    assert_eq!(rejected.status(), 409);
    for header in ["retry-after", "idempotent-replayed"] {
        assert!(!rejected.headers().contains_key(header), "{header}");
    }
    assert_eq!(provider.ledger().len(), 1);
}

/// Fails when `Received` takes one value of the key, when the body is not noted, and when its `Debug` prints the headers.
#[tokio::test]
async fn what_arrived_is_remembered_byte_for_byte() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let mut client = Connection::dial(provider.address(), version).await;
        let odd = Request::patch("http://provider/charges/ch_1?expand=all")
            .header("idempotency-key", &b"\xff"[..])
            .header("idempotency-key", "")
            .header("x-more", "1")
            .body(Full::from(Bytes::from_static(b"\0\xff")))
            .unwrap();
        assert_eq!(client.fetch(odd).await.unwrap().status(), 200);
        let get = Request::get("http://provider/charges").body(Full::default()).unwrap();
        assert_eq!(client.fetch(get).await.unwrap().status(), 200);
        let mut other = Connection::dial(provider.address(), version).await;
        assert_eq!(other.fetch(charge("secret")).await.unwrap().status(), 201);

        let received = provider.received();
        let [odd, get, post] = &received[..] else { panic!("{received:?}") };
        assert_eq!((&odd.method, &odd.path[..]), (&Method::PATCH, "/charges/ch_1?expand=all"));
        assert_eq!((&odd.keys[..], &odd.body[..]), (&[Bytes::from_static(b"\xff"), Bytes::new()][..], &b"\0\xff"[..]));
        assert_eq!(odd.headers["x-more"], "1");
        assert_eq!(odd.version == http::Version::HTTP_2, version == Version::Http2);
        assert_eq!((odd.connection, get.connection, post.connection, provider.connections()), (1, 1, 2, 2));
        assert!(odd.arrived <= get.arrived);
        assert_eq!(statuses(&provider), [Some(200), Some(200), Some(201)]);
        let logged = format!("{received:?} {:?}", provider.ledger());
        assert!(!logged.contains("secret") && !logged.contains("EUR"), "{logged}");
    }
}
