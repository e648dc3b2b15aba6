//! How long a server may take to do what a test waits for, where only who asks it learns of that.

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Between two questions to a server: whether it is worth asking again.
pub(crate) struct Patience {
    begun: Instant,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now() }
    }

    /// Waits a little.
    pub(crate) async fn lasts(&self) -> bool {
        sleep(Duration::from_millis(10)).await;
        self.begun.elapsed() < PATIENCE
    }
}

/// How long it may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
