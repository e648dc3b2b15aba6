//! What a client asks for, and the line of the ledger that comes of it.

use serde::{Deserialize, Serialize};

/// The body of `POST /payments`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// In the smallest unit of the currency.
    pub(crate) amount: i64,
    /// Three upper-case letters (ISO 4217).
    pub(crate) currency: String,
}

impl Order {
    /// The order, if it can be paid. Nothing has happened when it cannot, so a mended order may use the same key.
    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        if self.amount <= 0 {
            return Err("the amount must be positive, in the smallest unit of the currency\n");
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("the currency must be three upper-case letters, as in EUR\n");
        }
        Ok(self)
    }
}

/// One line of the ledger.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) account: String,
    pub(crate) amount: i64,
    pub(crate) currency: String,
}
