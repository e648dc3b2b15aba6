//! What goes wrong is picked by a number, so that whatever was seen once can be seen again.

use std::fmt::{self, Display, Formatter};

use clap::ValueEnum;

/// What happens to the one order.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) loss: Loss,
    pub(crate) kill: Kill,
}

impl Script {
    /// Sixteen seeds in a row are sixteen different scripts.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let pick = |number: u64| usize::try_from(number % 4).unwrap_or_default();
        Self { loss: Loss::ALL[pick(seed)], kill: Kill::ALL[pick((seed / 4).wrapping_add(seed))] }
    }
}

/// How the provider's answer is lost, after the charge.
#[derive(Clone, Copy)]
pub(crate) enum Loss {
    Closed,
    Cut,
    BadGateway,
    Late,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Closed, Self::Cut, Self::BadGateway, Self::Late];
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "is lost: its connection is closed",
            Self::Cut => "is cut off in the middle",
            Self::BadGateway => "is replaced by the 502 of a gateway",
            Self::Late => "comes too late",
        })
    }
}

/// Where the service is killed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kill {
    /// Its run has begun, and has not asked for the charge.
    Begun,
    /// The provider has charged, and has not answered.
    Charged,
    /// The service has the provider's answer, and has not recorded it.
    Answered,
    /// The order is recorded, and the caller has no answer.
    Recorded,
}

impl Kill {
    const ALL: [Self; 4] = [Self::Answered, Self::Charged, Self::Recorded, Self::Begun];
}

impl Display for Kill {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begun => "before it asks for the charge",
            Self::Charged => "when the charge is made and not answered",
            Self::Answered => "when it has the provider's answer and no record of it",
            Self::Recorded => "when the order is recorded and not answered",
        })
    }
}
