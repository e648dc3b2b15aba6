//! A point on a request's way at which the process is to be killed: it says so and goes no further.
//!
//! The kill itself comes from outside, as SIGKILL, once the line `failpoint NAME` is read. Only one request stops
//! there, and SIGUSR1 lets it go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};

use crate::hooked::{Hook, Hooking, Verb};

/// The points, in the order in which a request passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Point {
    /// The body is read, nothing is claimed.
    BeforeClaim,
    /// The store has the claim, the layer does not know.
    AfterClaim,
    /// The handler runs and has done nothing.
    Handler,
    /// A provider has charged for the handler, which has written nothing yet.
    Charged,
    /// The handler's transaction has begun and has nothing of the handler's in it.
    Begun,
    /// The handler has written its effect into the transaction.
    Effect,
    /// The response is there, its record is not.
    BeforeRecord,
    /// The record is there, the layer does not know.
    AfterRecord,
    /// The layer has answered, the client has not been.
    Answer,
}

impl Point {
    /// Those that each transfer of a bank passes.
    pub const ALL: [Self; 8] = [
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::Handler,
        Self::Begun,
        Self::Effect,
        Self::BeforeRecord,
        Self::AfterRecord,
        Self::Answer,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().expect("no point is hidden").get_name().to_owned()
    }
}

/// At most one point at which one request stops.
#[derive(Clone, Debug)]
pub struct Failpoint {
    at: Option<Point>,
    /// How many requests pass the point before one stops; below zero once one has.
    passing: Arc<AtomicI64>,
}

impl Failpoint {
    /// Stops the first request that comes to this point after so many others have passed it.
    #[must_use]
    pub fn new(at: Option<Point>, passing: u32) -> Self {
        Self { at, passing: Arc::new(AtomicI64::new(passing.into())) }
    }

    /// Goes on, unless this is the point.
    pub async fn pass(&self, point: Point) {
        if self.at == Some(point) && self.passing.fetch_sub(1, Ordering::SeqCst) == 0 {
            let mut released = signal(SignalKind::user_defined1()).expect("a signal that can be received");
            println!("failpoint {}", point.name());
            released.recv().await;
        }
    }

    fn hooking(&self, point: Option<Point>) -> Hooking {
        let failpoint = self.clone();
        Box::pin(async move {
            if let Some(point) = point {
                failpoint.pass(point).await;
            }
            Ok(())
        })
    }
}

impl Hook for Failpoint {
    fn before(&self, verb: Verb) -> Hooking {
        self.hooking(match verb {
            Verb::Claim => Some(Point::BeforeClaim),
            Verb::Complete | Verb::CompleteIn => Some(Point::BeforeRecord),
            _ => None,
        })
    }

    fn after(&self, verb: Verb) -> Hooking {
        self.hooking(match verb {
            Verb::Claim => Some(Point::AfterClaim),
            Verb::Begin => Some(Point::Begun),
            Verb::Complete | Verb::CompleteIn => Some(Point::AfterRecord),
            _ => None,
        })
    }
}
