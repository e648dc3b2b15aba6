//! What is to happen to a request, and how a test learns that it has.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Which request a fault waits for. A request is what the proxy reads at once from a client: a command, a pipeline.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// The next on any connection; on a new one, that is what opens it.
    Next,
    /// The next that contains this: the name of a command, a key.
    With(&'a str),
    /// The next with which a client of PostgreSQL runs a statement that contains this, also one that it has had prepared
    /// on the connection before and calls by a name. To have it prepared does not count.
    Runs(&'a str),
}

/// A fault that a proxy will have, or has had.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) struck: Event,
}

impl Fault {
    /// Waits until it has happened.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub async fn struck(&self) {
        self.struck.happened("no request came to the fault").await;
    }
}

/// A request that the server will not see before it is released.
#[derive(Clone, Debug)]
#[must_use = "a request that nobody releases is lost"]
pub struct Held {
    pub(super) struck: Event,
    pub(super) released: Event,
    pub(super) answered: Event,
}

impl Held {
    /// Waits until the proxy has the request.
    ///
    /// # Panics
    ///
    /// When none comes.
    pub async fn struck(&self) {
        self.struck.happened("no request came to be held").await;
    }

    /// Sends the request on, also when its client has gone in the meantime, and waits until the server has replied.
    ///
    /// # Panics
    ///
    /// When the server does not reply, and when the connection was cut.
    pub async fn release(self) {
        self.released.happen();
        self.answered.happened("no reply came to the released request").await;
    }
}

/// Something that happens once; whoever waits for it later knows of it too.
#[derive(Clone, Debug)]
pub(super) struct Event {
    happened: Arc<watch::Sender<bool>>,
}

impl Event {
    pub(super) fn new() -> Self {
        Self { happened: Arc::new(watch::Sender::new(false)) }
    }

    pub(super) fn happen(&self) {
        self.happened.send_replace(true);
    }

    pub(super) async fn wait(&self) {
        // Its sender is here.
        self.happened.subscribe().wait_for(|happened| *happened).await.expect("never closed");
    }

    async fn happened(&self, otherwise: &str) {
        timeout(PATIENCE, self.wait()).await.unwrap_or_else(|_| panic!("{otherwise}"));
    }
}

/// What a fault does once its request has come.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// The server gets the request; its reply is swallowed, and the connection closed.
    Drop,
    /// The server does not get the request, and the client's connection is reset.
    Refuse,
    /// The server gets the request; its reply is swallowed, and the client's connection reset.
    Reset,
    /// The server gets the request; half of what it replies passes, and the connection is closed.
    Halve,
    /// The server gets the request; its reply is swallowed, and nothing passes on the connection any more.
    Silence,
    /// The server gets the request once it is released.
    Hold { released: Event, answered: Event },
}

/// A fault that waits for its request.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    /// Empty for any request.
    with: Vec<u8>,
    is_run: bool,
    pub(super) kind: Kind,
    pub(super) struck: Event,
}

impl Armed {
    pub(super) fn new(request: Request<'_>, kind: Kind) -> Self {
        let (with, is_run) = match request {
            Request::Next => ("", false),
            Request::With(text) => (text, false),
            Request::Runs(text) => (text, true),
        };
        Self { with: with.as_bytes().to_owned(), is_run, kind, struck: Event::new() }
    }

    /// Whether it is for a request, with which the client runs these statements.
    pub(super) fn is_for(&self, request: &[u8], runs: &[Vec<u8>]) -> bool {
        match self.is_run {
            true => runs.iter().any(|statement| self.is_in(statement)),
            false => self.with.is_empty() || self.is_in(request),
        }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(self.with.len()).any(|window| window == self.with)
    }
}

/// How long a test waits for its fault.
const PATIENCE: Duration = Duration::from_secs(20);
