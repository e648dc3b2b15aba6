//! Who holds which key for which request: the values that go into a claim and fence every write after it.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The name of a record: a hash of scope, principal and key.
///
/// Keys are never stored. It is SHA-256 over version, scope, principal and key, each with its length before it; an HMAC
/// where the layer has a [secret](crate::IdempotencyLayer::hash_secret). Ordered, so that held records can be paged
/// through. `Display` writes 64 lower-case hex digits, and `FromStr` reads them in either case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId([u8; 32]);

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({}…)", Hex(&self.0[..SHOWN]))
    }
}

impl std::str::FromStr for RecordId {
    type Err = ParseRecordIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseRecordIdError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(ParseRecordIdError);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| ParseRecordIdError)?;
        }
        Ok(Self(bytes))
    }
}

/// The text is not a record id; it must be 64 hexadecimal digits, as the `record` member of a problem shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseRecordIdError;

impl fmt::Display for ParseRecordIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record id is 64 hexadecimal digits, as in the `record` member of an `outcome-unknown` problem")
    }
}

impl std::error::Error for ParseRecordIdError {}

/// A random name for one holder of a key. Fresh for every claim and never used for a second one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// A fresh id: 122 random bits (a version 4 UUID, RFC 9562, section 5.4).
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().into_bytes())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({}…)", Hex(&self.0[..SHOWN]))
    }
}

/// What a request asks for, hashed: two requests under one key are the same request only if these are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", Hex(&self.0[..SHOWN]))
    }
}

/// Whose credentials a request carries, hashed; the same for every request where a principal is configured, since the
/// principal is then part of the record's id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallerFingerprint([u8; 32]);

impl fmt::Debug for CallerFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerFingerprint(…)")
    }
}

/// What stores keep of the values above: their bytes.
macro_rules! bytes_of {
    ($($name:ident: $length:literal),+) => {
        $(
            impl $name {
                /// The value with these bytes.
                #[must_use]
                pub const fn from_bytes(bytes: [u8; $length]) -> Self {
                    Self(bytes)
                }

                /// The bytes, for a store's column.
                #[must_use]
                pub const fn as_bytes(&self) -> &[u8; $length] {
                    &self.0
                }
            }
        )+
    };
}

bytes_of!(RecordId: 32, LeaseId: 16, Fingerprint: 32, CallerFingerprint: 32);

/// Bytes as lower-case hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How many bytes of a value are in its `Debug`.
const SHOWN: usize = 4;

/// Tells stores apart within a process: two handles with the same identity reach the same records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(uuid::Uuid);

impl StoreId {
    /// A fresh identity, taken once when a store is opened.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4())
    }
}

/// The right to run one key and to write its outcome. Exhaustive: the tests of a store build it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The record that is held.
    pub record: RecordId,
    /// The holder; fences every write.
    pub id: LeaseId,
    /// How long a holder that went silent keeps others out, from the claim or the last renewal. Stores count whole
    /// milliseconds.
    pub duration: Duration,
}

/// All that a store needs to know to decide a claim. Exhaustive, so that a store can take it apart and keep each part; its
/// tests build it.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The lease that is asked for, under a fresh id.
    pub lease: Lease,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// Whose credentials ask for it.
    pub caller: CallerFingerprint,
    /// How long the record is kept after its last write; at least as long as the lease.
    pub retention: Duration,
    /// What is to happen if this holder dies; stored with the claim.
    pub policy: LapsePolicy,
}

/// What becomes of a run that ended without telling its outcome: a crash, a lost lease.
///
/// Stored with the claim, since whoever could say so later may be dead by then. So is the expiry: a store whose
/// database removes records by itself, by a time to live say, claims under [`Hold`](UnknownOutcome::Hold) without one,
/// and gives the record one with the write that ends the run.
///
/// Exhaustive: a store builds it from what it has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LapsePolicy {
    /// Whether the next claim may run it again.
    pub unknown: UnknownOutcome,
    /// After so many *lapsed* runs the record is HELD whatever `unknown` says: a request that kills its process does
    /// not kill it forever. Runs that answered, with a 5xx or 429 say, do not count. Under
    /// [`Rerun`](UnknownOutcome::Rerun) the next claim finds that out; until then the last run is one that lapsed, and
    /// it expires like any other.
    pub max_attempts: NonZeroU32,
}

/// What to do with a run whose effect may or may not have happened. Exhaustive, so that a store writes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownOutcome {
    /// The next retry runs the handler again, as the next attempt. An effect that is neither in the transaction nor
    /// behind a key that its system honours can then happen twice.
    #[default]
    Rerun,
    /// The key is held: every retry is refused with `outcome-unknown` until an operator decides.
    ///
    /// A run that goes silent is held as soon as its lease has lapsed, whether or not anybody asks for its key again,
    /// and does not expire.
    Hold,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `Hex` leaves out leading zeroes, or `from_str` takes the digits of a byte the other way round, another
    /// number of them, or what is no digit.
    #[test]
    fn a_record_id_is_read_as_it_is_written() {
        let id = RecordId::from_bytes(std::array::from_fn(|at| at as u8));
        let text = id.to_string();
        assert!(text.starts_with("000102") && text.ends_with("1d1e1f"), "{text}");
        for text in [&text, &text.to_uppercase()] {
            assert_eq!(text.parse(), Ok(id));
        }
        for wrong in ["", &text[1..], &text[2..], &format!("{text}00"), &text.replace('f', "g")] {
            assert_eq!(wrong.parse::<RecordId>(), Err(ParseRecordIdError), "{wrong}");
        }
    }

    /// Fails when `SHOWN` is 5, or `Debug` of any of them is derived.
    #[test]
    fn debug_shows_four_bytes_at_most() {
        assert_eq!(format!("{:?}", RecordId::from_bytes([0xab; 32])), "RecordId(abababab…)");
        assert_eq!(format!("{:?}", LeaseId::from_bytes([0xab; 16])), "LeaseId(abababab…)");
        assert_eq!(format!("{:?}", Fingerprint::from_bytes([0xab; 32])), "Fingerprint(abababab…)");
        assert_eq!(format!("{:?}", CallerFingerprint::from_bytes([0xab; 32])), "CallerFingerprint(…)");
    }
}
