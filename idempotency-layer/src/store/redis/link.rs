//! One shared connection to the server that takes the writes, found anew whenever it is lost.
//!
//! 1. All handles of a store send over one connection, whose commands are pipelined.
//! 2. A connection that breaks, does not answer in time, or leads to a server that takes no writes any more is given up.
//!    Whoever comes next waits for one attempt to connect, together with everyone else. Behind Sentinel that begins with
//!    the question who the primary is.
//! 3. A command on a connection that broke is sent once more on the next: every verb may be. One that was not answered in
//!    time is not; whoever asked has waited long enough.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};

use super::failure::is_of_connection;

/// The connection, or how to get one.
pub(super) struct Link {
    source: Source,
    current: Mutex<Current>,
}

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    Server(Client),
    Sentinels(Arc<tokio::sync::Mutex<SentinelClient>>),
}

struct Current {
    /// Counts connections, so that nobody gives up another's.
    number: u64,
    state: State,
}

enum State {
    Open(MultiplexedConnection),
    Opening(Opening),
}

type Opening = Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>;

impl Source {
    /// A connection of its own, whose commands may take so long beyond the time that every command may.
    pub(super) fn connect(&self, longer: Duration) -> BoxFuture<'static, Result<MultiplexedConnection, RedisError>> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT + longer));
        match self.clone() {
            Self::Server(client) => {
                async move { client.get_multiplexed_async_connection_with_config(&config).await }.boxed()
            }
            Self::Sentinels(client) => {
                async move { client.lock().await.get_async_connection_with_config(&config).await }.boxed()
            }
        }
    }
}

impl Link {
    pub(super) fn new(source: Source) -> Self {
        let state = State::Opening(source.connect(Duration::ZERO).shared());
        Self { source, current: Mutex::new(Current { number: 0, state }) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (number, mut connection) = self.get().await?;
        let error = match exchange(&mut connection, command).await {
            Err(error) if is_of_connection(&error) => error,
            answer => return answer,
        };
        self.give_up(number);
        if error.is_timeout() {
            return Err(error);
        }
        let (number, mut connection) = self.get().await?;
        let answer = exchange(&mut connection, command).await;
        if answer.as_ref().is_err_and(is_of_connection) {
            self.give_up(number);
        }
        answer
    }

    async fn get(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let (number, opening) = {
            let current = self.lock();
            match &current.state {
                State::Open(connection) => return Ok((current.number, connection.clone())),
                State::Opening(opening) => (current.number, opening.clone()),
            }
        };
        match opening.await {
            Ok(connection) => {
                let mut current = self.lock();
                if current.number == number {
                    current.state = State::Open(connection.clone());
                }
                Ok((number, connection))
            }
            Err(error) => {
                self.give_up(number);
                Err(error)
            }
        }
    }

    fn give_up(&self, number: u64) {
        let mut current = self.lock();
        if current.number == number {
            tracing::debug!("the connection to Redis is given up");
            let state = State::Opening(self.source.connect(Duration::ZERO).shared());
            *current = Current { number: number + 1, state };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Replaced whole, so a panic elsewhere leaves nothing half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a command; what the server answers as an error is one.
pub(super) async fn exchange(connection: &mut impl ConnectionLike, command: &Cmd) -> Result<Value, RedisError> {
    connection.req_packed_command(command).await?.extract_error()
}

/// How long a command waits for its answer.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one attempt to connect may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
