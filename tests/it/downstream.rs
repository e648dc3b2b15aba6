//! A service downstream that honours keys: it charges once for each, and counts how often it was asked.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;

/// What it was asked for. Clones are one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downstream {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Downstream {
    /// `POST /charges` under an `Idempotency-Key`.
    pub(crate) fn router(&self) -> Router {
        Router::new().route("/charges", post(charge)).with_state(self.clone())
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.lock().len()
    }

    /// How often it has charged.
    pub(crate) fn charges(&self) -> usize {
        self.lock().iter().collect::<HashSet<_>>().len()
    }

    /// Whether it was ever sent this key.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.lock().iter().any(|known| known == key)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn charge(State(downstream): State<Downstream>, headers: HeaderMap) -> StatusCode {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    downstream.lock().push(key.to_owned());
    StatusCode::CREATED
}
