//! One shared connection to a server that takes writes, made anew whenever it is lost.
//!
//! 1. All handles of a store send over one connection, whose commands are pipelined.
//! 2. A connection that breaks, does not answer in time, or leads to a server that takes no writes any more is given up.
//!    Whoever comes next waits for one attempt to connect, together with everyone else. Behind Sentinel that begins with
//!    the question who the primary is. That it does not answer counts also when nobody has waited for so long.
//! 3. A command on a connection that broke is sent once more on the next: every verb may be. One that was not answered in
//!    time is not; whoever asked has waited long enough.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;

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
    /// When something was first sent since the last answer. Whoever sent it may be gone, and with it the only one that
    /// would have noticed that no answer comes.
    asked: Option<Instant>,
}

enum State {
    Open(MultiplexedConnection),
    Opening(Opening),
}

type Opening = Shared<BoxFuture<'static, Result<MultiplexedConnection, RedisError>>>;

impl Source {
    /// A new connection, whose commands may take so long beyond the time that every command may.
    pub(super) async fn connect(self, longer: Duration) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT + longer));
        match self {
            Self::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            Self::Sentinels(client) => client.lock().await.get_async_connection_with_config(&config).await,
        }
    }
}

impl Link {
    pub(super) fn new(source: Source) -> Self {
        let state = State::Opening(source.clone().connect(Duration::ZERO).boxed().shared());
        Self { source, current: Mutex::new(Current { number: 0, state, asked: None }) }
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Sends to a cluster's node that is about to get the slot. Each command needs an `ASKING` of its own.
    pub(super) async fn send_asking(&self, sent: Sent<'_>) -> Result<Value, RedisError> {
        let mut asking = redis::pipe();
        for command in sent.commands() {
            asking.cmd("ASKING").add_command(command.clone());
        }
        let Value::Array(answers) = self.send(&asking).await? else { return Ok(Value::Nil) };
        let mut answers = answers.into_iter().skip(1).step_by(2);
        Ok(match sent {
            Sent::One(_) => answers.next().unwrap_or_default(),
            Sent::Several(_) => Value::Array(answers.collect()),
        })
    }

    pub(super) async fn send(&self, sent: impl Into<Sent<'_>>) -> Result<Value, RedisError> {
        let sent = sent.into();
        let (number, mut connection) = self.get().await?;
        let error = match sent.over(&mut connection).await {
            Err(error) if is_of_connection(&error) => error,
            answer => {
                self.answered(number);
                return answer;
            }
        };
        self.give_up(number);
        if error.is_timeout() {
            return Err(error);
        }
        let (number, mut connection) = self.get().await?;
        let answer = sent.over(&mut connection).await;
        if answer.as_ref().is_err_and(is_of_connection) {
            self.give_up(number);
        } else {
            self.answered(number);
        }
        answer
    }

    /// The connection and its number, for something that is sent at once.
    async fn get(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let (number, opening) = {
            let mut current = self.lock();
            if current.asked.is_some_and(|asked| asked.elapsed() > RESPONSE_TIMEOUT) {
                self.replace(&mut current);
            }
            let Current { number, state, asked } = &mut *current;
            match state {
                State::Open(connection) => {
                    asked.get_or_insert_with(Instant::now);
                    return Ok((*number, connection.clone()));
                }
                State::Opening(opening) => (*number, opening.clone()),
            }
        };
        match opening.await {
            Ok(connection) => {
                let mut current = self.lock();
                if current.number == number {
                    current.state = State::Open(connection.clone());
                    current.asked.get_or_insert_with(Instant::now);
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
            self.replace(&mut current);
        }
    }

    fn replace(&self, current: &mut Current) {
        tracing::debug!("the connection to Redis is given up");
        let state = State::Opening(self.source.clone().connect(Duration::ZERO).boxed().shared());
        *current = Current { number: current.number + 1, state, asked: None };
    }

    fn answered(&self, number: u64) {
        let mut current = self.lock();
        if current.number == number {
            current.asked = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Replaced whole, so a panic elsewhere leaves nothing half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is sent at once.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    One(&'a Cmd),
    /// Commands on one key in one write. Their answers are an array; if any is an error, that is the answer.
    Several(&'a Pipeline),
}

impl Sent<'_> {
    pub(super) async fn over(self, connection: &mut MultiplexedConnection) -> Result<Value, RedisError> {
        match self {
            Self::One(command) => exchange(connection, command).await,
            Self::Several(commands) => {
                let answers = connection.send_packed_commands(commands, 0, commands.len()).await?;
                Value::Array(answers).extract_error()
            }
        }
    }

    fn commands(&self) -> impl Iterator<Item = &Cmd> {
        let (one, several) = match self {
            Self::One(command) => (Some(*command), None),
            Self::Several(commands) => (None, Some(commands.cmd_iter())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl<'a> From<&'a Cmd> for Sent<'a> {
    fn from(command: &'a Cmd) -> Self {
        Self::One(command)
    }
}

impl<'a> From<&'a Pipeline> for Sent<'a> {
    fn from(commands: &'a Pipeline) -> Self {
        Self::Several(commands)
    }
}

/// Sends a command; what the server answers as an error is one.
pub(super) async fn exchange(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    connection.send_packed_command(command).await?.extract_error()
}

/// How long a command waits for its answer.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one attempt to connect may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
