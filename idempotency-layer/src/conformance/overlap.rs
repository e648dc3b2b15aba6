//! Calls that are under way at the same time, since a race that never overlaps shows nothing.

use std::future::Future;
use std::panic;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Starts all calls in tasks of their own, lets none go before all are there, and returns their answers in any order.
pub(super) async fn overlap<C>(calls: Vec<C>) -> Vec<C::Output>
where
    C: Future<Output: Send> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(calls.len()));
    let mut tasks = JoinSet::new();
    for call in calls {
        let barrier = Arc::clone(&barrier);
        tasks.spawn(async move {
            barrier.wait().await;
            call.await
        });
    }
    let mut answers = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok(answer) => answers.push(answer),
            Err(error) => match error.try_into_panic() {
                Ok(panicked) => panic::resume_unwind(panicked),
                Err(error) => panic!("an overlapping call was cancelled: {error}"),
            },
        }
    }
    answers
}
