//! A redirect can lead a keyed request to somebody who was not asked: this policy follows one only
//! within the origin.
//!
//! reqwest itself takes credentials from a request that goes to another origin, and leaves every
//! other header on it, the idempotency key and the body of a 307 or 308 among them.

use reqwest::Url;
use reqwest::redirect::{Attempt, Policy};
use url::Position;

use crate::current;

/// A redirect policy for [`reqwest::ClientBuilder::redirect`] that follows up to 10 redirects within one
/// origin, and returns a redirect to another one as the response.
///
/// An origin is scheme, host and port (RFC 6454, section 4): a redirect from `http` to `https` leads to another.
///
/// It also takes note that a redirect was followed. With another policy, an un-keyed POST that was redirected and then
/// found nobody at the new place counts as never sent, although the first server got it, and is sent again.
///
/// # Errors
///
/// The call fails, after one attempt, at the eleventh redirect.
/// [`TransportFailure::Redirect`](crate::TransportFailure::Redirect) is its failure.
#[must_use]
pub fn redirect_policy() -> Policy {
    Policy::custom(|attempt: Attempt<'_>| {
        let leads_elsewhere = attempt.previous().first().is_some_and(|first| !is_same_origin(first, attempt.url()));
        if leads_elsewhere {
            return attempt.stop();
        }
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error("more than 10 redirects");
        }
        current::followed_redirect();
        attempt.follow()
    })
}

/// Whether two URLs of HTTP have scheme, host and port in common.
pub(crate) fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Whether a response says where it comes from. One that another middleware has made may not, and reqwest gives it a
/// place that cannot be.
pub(crate) fn is_known(response: &Url) -> bool {
    response.host_str() != Some("no.url.provided.local")
}

/// Whether two URLs of HTTP ask for the same. Only one of them has a fragment or credentials, perhaps.
pub(crate) fn is_same_place(one: &Url, other: &Url) -> bool {
    let place = Position::BeforeHost..Position::AfterQuery;
    one.scheme() == other.scheme() && one[place.clone()] == other[place]
}

const MAX_REDIRECTS: usize = 10;
