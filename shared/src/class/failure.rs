//! An attempt without a response tells by how it failed whether the request can have taken effect:
//! these are the ways that make a difference, whatever library sent it.

use std::fmt::{self, Display, Formatter};

use super::Class;

/// Why an attempt got no response, or not all of it.
///
/// `#[non_exhaustive]`: a later version may tell more of them apart. Whoever needs to know what
/// follows asks for the [`Class`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportFailure {
    /// The name has no address, or nobody could be asked for it.
    Dns,
    /// Nobody listens at the address.
    ConnectionRefused,
    /// The connection, its TLS included, did not come about in time.
    ConnectTimeout,
    /// The connection did not come about for another reason: no route, a proxy that refused, a peer
    /// that hung up during the handshake.
    Connect,
    /// The peer speaks TLS in a way that was not accepted: above all, its certificate.
    Certificate,
    /// None of the request was written: its connection ended before, or its time had.
    Unsent,
    /// The peer refused the stream before it processed any of it (RFC 9113, section 8.7).
    RefusedStream,
    /// The peer closed the connection without an error, and did not process the stream (RFC 9113,
    /// section 6.8).
    GoAway,
    /// The response did not arrive in time.
    Timeout,
    /// The peer reset the connection or the stream.
    Reset,
    /// The connection ended before the response.
    Closed,
    /// The connection ended within the body of the response.
    TruncatedBody,
    /// What arrived is no HTTP.
    Protocol,
    /// The request could not be built: its URL, for one, is none.
    Builder,
    /// Redirects led in a circle, too far, or where the policy forbids.
    Redirect,
    /// A server redirected the request, and it did not get to the next one, or was refused there.
    AfterRedirect,
    /// The body of the request could not be read to its end, after a part of it may have been sent.
    RequestBody,
    /// The response arrived and could not be decoded.
    Decode,
    /// None of the above.
    Other,
}

impl TransportFailure {
    /// Every failure of this version.
    pub const ALL: &'static [Self] = &[
        Self::Dns,
        Self::ConnectionRefused,
        Self::ConnectTimeout,
        Self::Connect,
        Self::Certificate,
        Self::Unsent,
        Self::RefusedStream,
        Self::GoAway,
        Self::Timeout,
        Self::Reset,
        Self::Closed,
        Self::TruncatedBody,
        Self::Protocol,
        Self::Builder,
        Self::Redirect,
        Self::AfterRedirect,
        Self::RequestBody,
        Self::Decode,
        Self::Other,
    ];

    /// The same failure where it met a request that a server had redirected.
    ///
    /// That server got the request, and may have done what it asks before it answered with the place
    /// of the result (303, RFC 9110, section 15.4.4). So it no longer counts that the next one got
    /// nothing.
    #[must_use]
    pub fn after_redirect(self) -> Self {
        match self {
            Self::Certificate | Self::Builder => Self::Redirect,
            _ if matches!(self.class(), Class::NotSent | Class::Refused) => Self::AfterRedirect,
            _ => self,
        }
    }

    pub(super) fn class(self) -> Class {
        match self {
            Self::Dns | Self::ConnectionRefused | Self::ConnectTimeout | Self::Connect | Self::Unsent => Class::NotSent,
            Self::RefusedStream | Self::GoAway => Class::Refused,
            // What is not known may have been sent.
            Self::Timeout
            | Self::Reset
            | Self::Closed
            | Self::TruncatedBody
            | Self::Protocol
            | Self::AfterRedirect
            | Self::Other => Class::Ambiguous,
            Self::Certificate | Self::Builder | Self::Redirect | Self::RequestBody | Self::Decode => Class::Fatal,
        }
    }

    /// Whether a server may have acted although another attempt would fail alike.
    pub(super) fn follows_an_answer(self) -> bool {
        matches!(self, Self::Redirect | Self::RequestBody | Self::Decode)
    }
}

impl Display for TransportFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "the host name was not found",
            Self::ConnectionRefused => "the connection was refused",
            Self::ConnectTimeout => "the connection took too long",
            Self::Connect => "the connection failed",
            Self::Certificate => "the certificate of the server was not accepted",
            Self::Unsent => "none of the request was sent",
            Self::RefusedStream => "the server refused the stream",
            Self::GoAway => "the server closed the connection before it processed the request",
            Self::Timeout => "the response took too long",
            Self::Reset => "the connection was reset",
            Self::Closed => "the connection closed before the response",
            Self::TruncatedBody => "the response broke off",
            Self::Protocol => "the response is not HTTP",
            Self::Builder => "the request cannot be sent as it is",
            Self::Redirect => "the redirects led nowhere",
            Self::AfterRedirect => "the request was redirected and not processed at the new place",
            Self::RequestBody => "the body of the request could not be read",
            Self::Decode => "the response could not be decoded",
            Self::Other => "the request failed in an unknown way",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;

    /// Fails when `after_redirect` leaves any failure as it is that says that nothing was sent.
    #[test]
    fn every_failure_after_a_redirect_is_ambiguous() {
        for failure in TransportFailure::ALL {
            assert!(Ending::Failure(failure.after_redirect()).is_ambiguous(), "{failure:?}");
        }
    }
}
