//! What a request under a key gets, decided by what the provider has done for that key before.
//!
//! | the key | [`Replays`](Keys::Replays) | [`Rejects`](Keys::Rejects) | [`Ignores`](Keys::Ignores) |
//! |---|---|---|---|
//! | none | charges | charges | charges |
//! | is new | charges | charges | charges |
//! | is at work, same payload | 409, `Retry-After: 1` | 409 | charges |
//! | has charged, same payload | the same answer, `Idempotent-Replayed: true` | 409 | charges |
//! | came with another payload | 422 | 409 | charges |
//!
//! The 409 of a provider that rejects is one of its domain: it does not say to come again.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;

/// One line of the ledger: money that was moved.
#[derive(Clone, PartialEq, Eq)]
pub struct Charge {
    /// The key under which it was asked for, as the header had it.
    pub key: Option<Bytes>,
    /// How much.
    pub amount: i64,
}

/// What the provider makes of keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Keys {
    #[default]
    Replays,
    Rejects,
    Ignores,
}

/// The ledger, and what was done for each key.
#[derive(Default)]
pub(super) struct Books {
    pub(super) keys: Keys,
    ledger: Vec<Charge>,
    known: HashMap<Bytes, Known>,
}

/// What was asked for under a key.
struct Known {
    payload: Bytes,
    /// None while it is at work.
    answer: Option<Answer>,
}

/// What becomes of a request for a charge.
pub(super) enum Claim {
    Charges(Order),
    Answered(Answer),
}

/// A charge that may go on. Its key is at work until it is [committed](Books::commit).
pub(super) struct Order {
    key: Option<Bytes>,
    amount: i64,
    currency: String,
}

/// What a client asks for.
#[derive(Deserialize)]
struct Payload {
    amount: i64,
    currency: String,
}

impl Books {
    /// Claims the key for a charge, or says what else the request gets.
    pub(super) fn claim(&mut self, keys: &[Bytes], payload: &Bytes) -> Claim {
        let Ok(Payload { amount, currency }) = serde_json::from_slice(payload) else {
            return Claim::Answered(Answer::error(400, "payload_invalid"));
        };
        let key = match keys {
            [] => None,
            [key] => Some(key.clone()),
            _ => return Claim::Answered(Answer::error(400, "key_repeated")),
        };
        if let (Some(key), Keys::Replays | Keys::Rejects) = (&key, self.keys) {
            if let Some(known) = self.known.get(key) {
                return Claim::Answered(self.again(known, payload));
            }
            self.known.insert(key.clone(), Known { payload: payload.clone(), answer: None });
        }
        Claim::Charges(Order { key, amount, currency })
    }

    /// A further request under a key.
    fn again(&self, known: &Known, payload: &Bytes) -> Answer {
        match &known.answer {
            _ if matches!(self.keys, Keys::Rejects) => Answer::error(409, "charge_exists"),
            _ if known.payload != payload => Answer::error(422, "key_reused"),
            None => Answer::error(409, "key_in_use").retry_after("1"),
            Some(answer) => answer.clone().replayed(),
        }
    }

    /// Moves the money, and keeps the answer for whoever comes again.
    pub(super) fn commit(&mut self, Order { key, amount, currency }: Order) -> Answer {
        self.ledger.push(Charge { key: key.clone(), amount });
        let charge = format!("ch_{}", self.ledger.len());
        let answer = Answer::json(201, &json!({ "charge": charge, "amount": amount, "currency": currency }));
        if let Some(known) = key.and_then(|key| self.known.get_mut(&key)) {
            known.answer = Some(answer.clone());
        }
        answer
    }

    pub(super) fn ledger(&self) -> &[Charge] {
        &self.ledger
    }
}

/// A key is not for logs.
impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("is_keyed", &self.key.is_some())
            .field("amount", &self.amount)
            .finish_non_exhaustive()
    }
}
