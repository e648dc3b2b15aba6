//! Derived keys can be made such that only the service computes them: a [`DerivationSecret`] is what
//! they are derived under.

use std::error::Error;
use std::fmt::{self, Debug, Display, Formatter};

use hmac::{Hmac, KeyInit};
use sha2::Sha256;

use super::derivation::DOMAIN;

/// The secret under which keys are derived: at least 16 bytes that only the service knows.
///
/// Every process of the service, and every version of it that may start a run again, needs the same
/// one. `Debug` does not show it.
#[derive(Clone)]
pub struct DerivationSecret(Hmac<Sha256>);

impl DerivationSecret {
    /// A secret of these bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer than 16 of them.
    pub fn new(secret: &[u8]) -> Result<Self, DerivationSecretError> {
        let too_short = DerivationSecretError { length: secret.len() };
        if secret.len() < MIN_LEN {
            return Err(too_short);
        }
        // HMAC takes a key of any length (RFC 2104, section 3), so its own error never occurs.
        Hmac::new_from_slice(secret).map(Self).map_err(|_| too_short)
    }

    /// What stands for a secret's where none is configured: that of the domain.
    pub(super) fn mac_of_none() -> Hmac<Sha256> {
        // HMAC itself fills a key that is shorter than a block up with zeros.
        let mut block = [0; 64];
        block[..DOMAIN.len()].copy_from_slice(DOMAIN.as_bytes());
        Hmac::new(&block.into())
    }

    pub(super) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

impl Debug for DerivationSecret {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DerivationSecret(…)")
    }
}

/// A [`DerivationSecret`] was asked for that is too short to be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivationSecretError {
    length: usize,
}

impl Display for DerivationSecretError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "a secret of {} bytes can be guessed: use at least {MIN_LEN} random ones", self.length)
    }
}

impl Error for DerivationSecretError {}

/// 128 bits, as many as a derived key has.
const MIN_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `MIN_LEN` is 15 or 17.
    #[test]
    fn secrets_have_16_bytes_at_least() {
        assert!(DerivationSecret::new(&[7; 16]).is_ok());
        assert_eq!(DerivationSecret::new(&[7; 15]).unwrap_err(), DerivationSecretError { length: 15 });
    }

    /// Fails when `Debug` is derived.
    #[test]
    fn debug_does_not_show_the_secret() {
        let secret = DerivationSecret::new(b"a secret of more than 16 bytes").unwrap();
        assert_eq!(format!("{secret:?}"), "DerivationSecret(…)");
    }
}
