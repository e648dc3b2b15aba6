//! Two calls that would be one to whoever receives them are told before either is repeated:
//! [`DerivedKeyReused`] says which, and how to tell them apart.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

use super::derivation::Name;

/// A run asked a second time for the key of the same operation, discriminators and ordinal.
///
/// Nothing was sent. Its text names the operation, and holds no discriminator, no principal and no
/// key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedKeyReused {
    pub(super) name: Name,
    pub(super) discriminators: usize,
    pub(super) nth: u64,
}

impl Display for DerivedKeyReused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Given(name) => write!(f, "the operation {name:?}")?,
            Name::Ambient { method, origin, path } => write!(f, "the unnamed call {method} {origin}{path}")?,
        }
        match self.discriminators {
            0 => {}
            1 => f.write_str(" with its discriminator")?,
            several => write!(f, " with its {several} discriminators")?,
        }
        if self.nth > 0 {
            write!(f, " and ordinal {}", self.nth)?;
        }
        f.write_str(" has its key already, and nothing was sent: ")?;
        f.write_str(match &self.name {
            Name::Given(_) => {
                "if it is the same call, send the key it got; if it is another one, tell them apart with \
                 `.with(…)` or `.nth(…)`"
            }
            Name::Ambient { .. } => {
                "if this is another call to the same place, name them both with `propagation.operation(…)` \
                 and tell equal ones apart with `.with(…)` or `.nth(…)`"
            }
        })
    }
}

impl Error for DerivedKeyReused {}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    /// Fails when `Display` leaves out the ordinal, or gives ambient calls the advice for named ones.
    #[test]
    fn text_says_what_happened_and_what_to_do() {
        let named = DerivedKeyReused { name: Name::Given("charge".into()), discriminators: 1, nth: 2 };
        assert_eq!(
            named.to_string(),
            "the operation \"charge\" with its discriminator and ordinal 2 has its key already, and nothing was \
             sent: if it is the same call, send the key it got; if it is another one, tell them apart with \
             `.with(…)` or `.nth(…)`"
        );
        let name =
            Name::Ambient { method: Method::POST, origin: "https://pay.example".into(), path: "/charges".into() };
        let ambient = DerivedKeyReused { name, discriminators: 0, nth: 0 };
        assert_eq!(
            ambient.to_string(),
            "the unnamed call POST https://pay.example/charges has its key already, and nothing was sent: if this \
             is another call to the same place, name them both with `propagation.operation(…)` and tell equal \
             ones apart with `.with(…)` or `.nth(…)`"
        );
    }
}
