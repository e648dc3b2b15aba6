//! The words that a server and its clients must share, so that an answer means to the reader what
//! it meant to the writer.

pub mod header;
pub mod problem;

pub use self::header::{
    IDEMPOTENCY_EXPIRES_IN, IDEMPOTENCY_KEY, IDEMPOTENCY_PROBLEM, IDEMPOTENT_REPLAYED,
};
pub use self::problem::{Problem, ProblemCode};
