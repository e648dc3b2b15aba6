//! What a client does about an answer that does not come, from nothing to what this crate does.

use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tokio::time::timeout;
use tower::retry::budget::{Budget, TpsBudget};

use crate::{IdempotentRetry, RetryBudget};

/// How a client retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Not at all.
    Never,
    /// Twice, at once.
    AtOnce,
    /// As before, where retries are a fifth of the calls at most: the budget of tower, which reqwest has as well.
    Share,
    /// As this crate does by default.
    Default,
    /// As this crate does by default, in ten clients that take turns.
    Ten,
    /// As before, with a tenth of the default's balance in each.
    TenOfATenth,
    /// As this crate does with a budget that pays for everything.
    Unlimited,
}

impl Policy {
    pub(super) const ALL: [Self; 7] =
        [Self::Never, Self::AtOnce, Self::Share, Self::Default, Self::Ten, Self::TenOfATenth, Self::Unlimited];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Never => "no retries",
            Self::AtOnce => "two retries, at once",
            Self::Share => "a fifth of the calls",
            Self::Default => "this crate",
            Self::Ten => "this crate, in ten clients",
            Self::TenOfATenth => "this crate, in ten clients, `cap(100)`",
            Self::Unlimited => "this crate, `unlimited()`",
        }
    }

    /// How many clients make the calls.
    pub(super) fn clients(self) -> usize {
        match self {
            Self::Ten | Self::TenOfATenth => 10,
            Self::Never | Self::AtOnce | Self::Share | Self::Default | Self::Unlimited => 1,
        }
    }

    /// The middleware of one client. No client waits for an answer for longer than [`PATIENCE`].
    pub(super) fn middleware(self) -> Box<dyn Middleware> {
        let ours = |budget| {
            let retry = IdempotentRetry::builder().attempt_timeout(PATIENCE).budget(budget);
            retry.build().expect("settings that can be kept")
        };
        match self {
            Self::Never => Box::new(Plain { attempts: 1, budget: None }),
            Self::AtOnce => Box::new(Plain { attempts: 3, budget: None }),
            Self::Share => Box::new(Plain { attempts: 3, budget: Some(TpsBudget::default()) }),
            Self::Default | Self::Ten => Box::new(ours(RetryBudget::default())),
            Self::TenOfATenth => Box::new(ours(RetryBudget::default().cap(100))),
            Self::Unlimited => Box::new(ours(RetryBudget::unlimited())),
        }
    }
}

/// A loop as it is written where nobody thinks of the server.
struct Plain {
    attempts: u32,
    budget: Option<TpsBudget>,
}

#[async_trait]
impl Middleware for Plain {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
        let mut attempt = 1;
        loop {
            let copy = request.try_clone().expect("a body in memory");
            match timeout(PATIENCE, next.clone().run(copy, extensions)).await {
                Ok(outcome) => return outcome,
                Err(late) if attempt == self.attempts => return Err(Error::middleware(late)),
                Err(late) if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) => {
                    return Err(Error::middleware(late));
                }
                Err(_) => attempt += 1,
            }
        }
    }
}

/// For how long a client waits for the answer to one attempt.
const PATIENCE: Duration = Duration::from_secs(1);
