//! A call that its caller drops is over: nothing is sent for it any more, and it owes nothing.

use client_retry::{RetryBudget, StopReason};
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use tokio::time::timeout;

use super::*;

/// C8. Fails when `Settings::run` is spawned, or `Withdrawal` does not pay back.
#[tokio::test]
async fn dropped_call_sends_nothing_and_owes_nothing() {
    let long = Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Answer::new(503).header("retry-after", "1")));
        // It pays for one retry, ever.
        let budget = RetryBudget::default().cap(10).per_success(0).per_second(0);
        let retry = client(version, quick().backoff(long).budget(budget).build().unwrap());
        for dropped in 1..=3 {
            let call = charge(&retry, &provider).send();
            tokio::select! {
                _ = call => panic!("it waits for a second"),
                () = provider.arrived(dropped) => {}
            }
        }
        // Dropped while it sleeps, which it does as soon as the answer is there.
        for dropped in 4..=5 {
            let call = timeout(Duration::from_millis(300), charge(&retry, &provider).send());
            assert!(call.await.is_err(), "it waits for a second");
            assert_eq!(provider.received().len(), dropped);
        }
        // What is left pays for the one retry of the next call, and for none of another.
        let response = charge(&retry, &provider).send().await.unwrap();
        assert_eq!(report(&response).attempts().len(), 2, "{version:?}");
        assert_eq!(report(&response).stop(), StopReason::BudgetExhausted);
        assert_eq!(provider.received().len(), 7, "nothing was sent for those that were dropped");
    }
}

/// C8, over the wire. Fails when the attempt is given to a task of its own.
#[tokio::test]
async fn dropped_attempt_leaves_its_connection() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Ending::Silence));
        let retry = quick_client(version);
        let call = charge(&retry, &provider).send();
        tokio::select! {
            _ = call => panic!("nobody answers"),
            () = provider.arrived(1) => {}
        }
        provider.mend();
        assert_eq!(charge(&retry, &provider).send().await.unwrap().status(), 201);
        assert_eq!((provider.received().len(), provider.ledger().len()), (2, 1), "{version:?}");
    }
}
