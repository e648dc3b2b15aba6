//! What removes expired records again and again, for stores whose database does not do that by itself.

use std::time::Duration;

use tokio::task::AbortHandle;

use super::StoreError;

/// Sweeps for as long as it is kept.
#[must_use = "dropped, it stops"]
#[derive(Debug)]
pub struct Sweeper {
    task: AbortHandle,
}

impl Sweeper {
    /// Sweeps at once and then with this pause between, in a task of the current runtime.
    pub(crate) fn spawn<F>(pause: Duration, sweep: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<u64, StoreError>> + Send,
    {
        let task = tokio::spawn(async move {
            loop {
                match sweep().await {
                    Ok(removed) => tracing::debug!(removed, "swept idempotency records"),
                    Err(error) => {
                        tracing::warn!(error = error.cause(), "idempotency records were not swept; the next sweep may")
                    }
                }
                tokio::time::sleep(pause).await;
            }
        });
        Self { task: task.abort_handle() }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}
