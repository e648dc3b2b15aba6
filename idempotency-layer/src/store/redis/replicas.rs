//! Writes that wait until replicas have them.
//!
//! `WAIT` holds up its connection, so each such write has one to itself, on which all is sent at once; idle ones are kept for
//! the next.
//!
//! `WAIT` is documented for the writes of its own connection. A verb that is sent again writes nothing, and what it answers
//! for was written on another connection. Redis 7.0 goes by the whole stream all the same; nothing says that every server
//! does. So a message to nobody goes between the two: it is replicated like a write, behind all that was written before.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::Semaphore;

use super::failure::is_of_connection;
use super::link::{Source, exchange};

/// Connections for writes that wait.
pub(super) struct Replicas {
    source: Source,
    /// How many must have a write.
    count: u32,
    /// How long they may take.
    timeout: Duration,
    idle: Mutex<Vec<MultiplexedConnection>>,
    places: Semaphore,
}

impl Replicas {
    pub(super) fn new(source: Source, count: u32, timeout: Duration) -> Self {
        Self { source, count, timeout, idle: Mutex::default(), places: Semaphore::new(CONNECTIONS) }
    }

    /// Sends a write, and says what it answered and whether enough replicas have it.
    pub(super) async fn send(&self, command: &Cmd) -> Result<(Value, bool), RedisError> {
        let _place = self.places.acquire().await;
        let kept = self.lock().pop();
        let is_kept = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.source.clone().connect(self.timeout).await?,
        };
        let mut sent = self.write(&mut connection, command).await;
        if is_kept && sent.as_ref().is_err_and(|error| is_of_connection(error) && !error.is_timeout()) {
            // The others have the same age and the same fate.
            self.lock().clear();
            connection = self.source.clone().connect(self.timeout).await?;
            sent = self.write(&mut connection, command).await;
        }
        if !sent.as_ref().is_err_and(is_of_connection) {
            self.lock().push(connection);
        }
        sent
    }

    async fn write(&self, connection: &mut MultiplexedConnection, command: &Cmd) -> Result<(Value, bool), RedisError> {
        let mut beside = connection.clone();
        let mut wait = redis::cmd("WAIT");
        // A timeout of 0 would be none.
        let millis = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
        wait.arg(self.count).arg(millis);
        // Polled in this order, so that they are sent in it.
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(CHANNEL).arg("");
        let mut between = connection.clone();
        let (answer, published, confirmed) = tokio::join!(
            biased;
            exchange(connection, command),
            exchange(&mut between, &publish),
            exchange(&mut beside, &wait)
        );
        let answer = answer?;
        published?;
        let confirmed: i64 = redis::from_redis_value(confirmed?)?;
        Ok((answer, confirmed >= i64::from(self.count)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody listens there.
const CHANNEL: &str = "idempotency:wait";

/// How many writes wait at once; more wait for a place.
const CONNECTIONS: usize = 64;
