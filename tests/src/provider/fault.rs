//! What goes wrong with a request, and at which moment of its way.
//!
//! | ending | HTTP/1.1 | HTTP/2 | unread | uncommitted | committed |
//! |---|---|---|---|---|---|
//! | [`Reset`](Ending::Reset), [`Close`](Ending::Close), [`Silence`](Ending::Silence), [`Answer`](Ending::Answer) | yes | yes | yes | yes | yes |
//! | [`Late`](Ending::Late), [`Stall`](Ending::Stall) | yes | yes | | | yes |
//! | [`HalfHead`](Ending::HalfHead), [`ShortBody`](Ending::ShortBody), [`OpenChunks`](Ending::OpenChunks) | yes | | | | yes |
//! | [`ResetStream`](Ending::ResetStream) | | yes | yes | yes | yes, but `REFUSED_STREAM` |
//! | [`GoAway`](Ending::GoAway) | | yes | yes | | |
//! | [`BreakStream`](Ending::BreakStream), [`BreakConnection`](Ending::BreakConnection) | | yes | | | yes |
//!
//! What the table leaves out is refused with a panic where it is asked for, since it would be a fault that no server has: an
//! answer before there is one, or the word that nothing was done about what was.

use std::time::Duration;

use h2::Reason;

use super::answer::Answer;
use crate::wire::Version;

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) moment: Moment,
    pub(super) ending: Ending,
}

/// How far a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Accepted,
    Unread,
    Uncommitted,
    Committed,
}

/// How it ends there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// The connection is reset (TCP RST), and what is on the way to the client is lost with it.
    Reset,
    /// The connection is closed (TCP FIN) without an answer.
    Close,
    /// Nothing comes, and the connection stays open.
    Silence,
    /// This answer, whatever the provider's own would be.
    Answer(Answer),
    /// The provider's own answer, so much later.
    Late(Duration),
    /// The head and half the body, then nothing, and the connection stays open.
    Stall,
    /// Half the head, then FIN.
    HalfHead,
    /// The head, which declares a length, and half the body, then FIN.
    ShortBody,
    /// The whole body as a chunk, without the last chunk that ends it, then FIN.
    OpenChunks,
    /// RST_STREAM in the place of an answer. `REFUSED_STREAM` says that nothing was done.
    ResetStream(Reason),
    /// GOAWAY, of which the stream is above the last one that is processed (RFC 9113, section 6.8). What came before it on
    /// the connection is answered, what comes after it on the connection is passed over and not recorded.
    GoAway(Reason),
    /// The head and half the body, then RST_STREAM.
    BreakStream(Reason),
    /// The head and half the body, then GOAWAY and FIN. It takes every other stream of the connection with it.
    BreakConnection(Reason),
}

impl Fault {
    /// RST right after the connection was accepted: the request is never read, and not recorded. It is the turn of whichever
    /// connection comes when it is next.
    #[must_use]
    pub fn accepted() -> Self {
        Self { moment: Moment::Accepted, ending: Ending::Reset }
    }

    /// When the request's head has come and before its body is read; nothing is charged.
    #[must_use]
    pub fn unread(ending: impl Into<Ending>) -> Self {
        Self { moment: Moment::Unread, ending: ending.into() }
    }

    /// When the request has been read whole; nothing is charged, and the key stays as new as it was.
    #[must_use]
    pub fn uncommitted(ending: impl Into<Ending>) -> Self {
        Self { moment: Moment::Uncommitted, ending: ending.into() }
    }

    /// When the charge is in the ledger and its key has its answer.
    #[must_use]
    pub fn committed(ending: impl Into<Ending>) -> Self {
        Self { moment: Moment::Committed, ending: ending.into() }
    }

    /// Panics when there is no such fault, or not on this version of HTTP.
    pub(super) fn check(&self, version: Version) {
        let is_of_one_version = match &self.ending {
            Ending::Reset | Ending::Close | Ending::Silence | Ending::Answer(_) | Ending::Late(_) | Ending::Stall => {
                None
            }
            Ending::HalfHead | Ending::ShortBody | Ending::OpenChunks => Some(Version::Http1),
            Ending::ResetStream(_) | Ending::GoAway(_) | Ending::BreakStream(_) | Ending::BreakConnection(_) => {
                Some(Version::Http2)
            }
        };
        assert!(
            is_of_one_version.is_none_or(|only| only == version),
            "{:?} does not exist on {version:?}",
            self.ending
        );
        let exists = match &self.ending {
            Ending::Reset | Ending::Close | Ending::Silence | Ending::Answer(_) => true,
            Ending::ResetStream(reason) => *reason != Reason::REFUSED_STREAM || self.moment != Moment::Committed,
            Ending::GoAway(_) => self.moment == Moment::Unread,
            _ => self.moment == Moment::Committed,
        };
        assert!(exists, "{:?} does not exist at the moment {:?}", self.ending, self.moment);
    }
}

impl From<Answer> for Ending {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}
