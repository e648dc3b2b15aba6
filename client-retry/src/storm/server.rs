//! A server that falls behind is late for everybody: one with a queue, whose work does not shrink when its clients
//! lose patience.
//!
//! - [`WORKERS`] take requests in the order of their arrival, and each request keeps one for [`WORK`]: together 1000 in
//!   a second.
//! - While it is stalled, no work is done and the queue grows.
//! - Nobody tells it that a client is gone, so a request that nobody waits for costs what any other does. This is what
//!   makes retries harmful: each of them delays all that come after it.
//!
//! When a request is done follows from those before it, so it is known when it arrives, and nothing runs for it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use tokio::time::{Instant, sleep_until};

/// The innermost middleware, which answers in the place of reqwest.
#[derive(Debug)]
pub(super) struct Server {
    stalled: Range<Instant>,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    /// When each worker has done what is queued for it.
    free: [Instant; WORKERS],
    arrivals: Vec<Instant>,
}

impl Server {
    pub(super) fn new(stalled: Range<Instant>) -> Self {
        let queue = Queue { free: [Instant::now(); WORKERS], arrivals: Vec::new() };
        Self { stalled, queue: Mutex::new(queue) }
    }

    /// When each request came, in order.
    pub(super) fn arrivals(&self) -> Vec<Instant> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).arrivals.clone()
    }

    /// Queues a request that arrives now, and says when it will be done.
    fn arrive(&self) -> Instant {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        queue.arrivals.push(now);
        let free = queue.free.iter_mut().min().expect("there are workers");
        *free = self.done(now.max(*free));
        *free
    }

    /// When the work is done that is begun at the given moment.
    fn done(&self, begun: Instant) -> Instant {
        let done = begun + WORK;
        if begun >= self.stalled.end || done <= self.stalled.start {
            return done;
        }
        done + (self.stalled.end - begun.max(self.stalled.start))
    }
}

#[async_trait]
impl Middleware for Server {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let done = self.arrive();
        sleep_until(done).await;
        Ok(http::Response::new("").into())
    }
}

const WORKERS: usize = 10;

const WORK: Duration = Duration::from_millis(10);
