//! A verb whose future is dropped has happened or it has not; its record is whole either way.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use super::Harness;
use super::key::{End, Key, Seen, answer_of};
use crate::Store;
use crate::store::{Claim, Completion, Write};

/// A claim that is dropped on its way leaves nothing or a run under its id; sent again, it is acquired.
///
/// Fails on a store that reserves a key in one step and names the holder in another.
pub async fn a_dropped_claim_is_whole<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for polls in 0..POLLS {
        let key = any.fresh();
        let request = key.request();
        drop_after(polls, key.store.claim(&request)).await;
        let seen = key.seen().await;
        assert!(
            seen == Seen::Absent || seen == Seen::Running(request.lease.id),
            "a claim dropped after {polls} polls left {seen:?}"
        );
        assert_is!(key.send(&request).await, Claim::Acquired(_), "a claim dropped after {polls} polls, sent again");
    }
}

/// A completion that is dropped on its way leaves the run or the whole response; sent again, it is done.
///
/// Fails on a store that writes the state in one step and the response in another.
pub async fn a_dropped_completion_is_whole<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for polls in 0..POLLS {
        let key = any.fresh();
        let lease = key.acquire().await;
        let completion = Completion::Response(answer_of(&lease));
        drop_after(polls, key.store.complete(&lease, &completion)).await;
        let seen = key.seen().await;
        assert!(
            seen == Seen::Running(lease.id) || seen == Seen::Recorded(answer_of(&lease)),
            "a completion dropped after {polls} polls left {seen:?}"
        );
        let again = key.end(End::Complete, &lease).await;
        assert_eq!(again, Write::Done, "a completion dropped after {polls} polls, sent again");
    }
}

/// Polls a future so many times, each after others had their turn, and drops it.
async fn drop_after<T>(polls: usize, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    for _ in 0..polls {
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

const POLLS: usize = 6;
