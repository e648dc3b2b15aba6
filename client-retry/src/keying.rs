//! A call has one key on every attempt because the key is chosen before the first: here is decided
//! which it is.
//!
//! 1. The header that the caller has set.
//! 2. The [`IdempotencyKey`] among the request's extensions.
//! 3. For the methods that are keyed: the key that this call had when the same request came through before, for somebody outside of this
//!    middleware may retry as well.
//! 4. For the same methods: the key that the current [`Propagation`] derives from where the call goes, or that of an extension.
//! 5. For the same methods: a random one.
//!
//! The first two also key a method that is not keyed by itself. Where both are there and differ, where a value cannot be read,
//! and where the propagation has derived the same key for another call of this run, nothing is sent.
//!
//! The header is written anew in the configured [`KeyFormat`], so that every key has one spelling.

use std::sync::Arc;

use http::{Extensions, HeaderName, Method};
use idempotency_shared::{IDEMPOTENCY_KEY, IdempotencyKey, KeyLimit, Propagation};
use reqwest::{Body, Request};

use crate::copies::Copies;
use crate::{Error, KeyFormat, NoIdempotencyKey};

/// Which calls get a key, and how it is written.
#[derive(Clone, Debug)]
pub(crate) struct Keying {
    pub(crate) header: HeaderName,
    pub(crate) format: KeyFormat,
    pub(crate) methods: Vec<Method>,
}

impl Keying {
    /// Writes the key of the call into its header; `None` where the call has none.
    pub(crate) fn key(&self, request: &mut Request, extensions: &Extensions) -> Result<Option<IdempotencyKey>, Error> {
        if extensions.get::<NoIdempotencyKey>().is_some() {
            return Ok(None);
        }
        let Some(key) = self.choose(request, extensions)? else {
            return Ok(None);
        };
        request.headers_mut().insert(self.header.clone(), self.format.write(&key));
        Ok(Some(key))
    }

    fn choose(&self, request: &Request, extensions: &Extensions) -> Result<Option<IdempotencyKey>, Error> {
        let written = IdempotencyKey::from_headers(request.headers(), &self.header, KeyLimit::default())
            .map_err(|error| Error::invalid_key(request, &self.header, error))?;
        match (written, extensions.get::<IdempotencyKey>()) {
            (Some(written), Some(extension)) if written != *extension => {
                return Err(Error::two_keys(request, &self.header));
            }
            (Some(key), _) => return Ok(Some(key)),
            (None, Some(key)) => return Ok(Some(key.clone())),
            (None, None) => {}
        }
        if !self.methods.contains(request.method()) {
            return Ok(None);
        }
        if let Some(earlier) = extensions.get::<Earlier>().filter(|earlier| earlier.is_of(request)) {
            return Ok(Some(earlier.key.clone()));
        }
        match extensions.get::<Propagation>().cloned().or_else(Propagation::current) {
            Some(propagation) => derived(&propagation, request).map(Some),
            None => Ok(Some(IdempotencyKey::random())),
        }
    }
}

impl Default for Keying {
    fn default() -> Self {
        Self { header: IDEMPOTENCY_KEY, format: KeyFormat::default(), methods: vec![Method::POST, Method::PATCH] }
    }
}

fn derived(propagation: &Propagation, request: &Request) -> Result<IdempotencyKey, Error> {
    let url = request.url();
    propagation
        .ambient(request.method(), &url.origin().ascii_serialization(), url.path())
        .key()
        .map_err(|error| Error::derived_key_reused(request, error))
}

/// The key that a request had, left in its caller's extensions when it failed.
///
/// A retry outside of this middleware sends the same request again, with the same extensions: same method, same URL,
/// and a body in the same place of memory, which this keeps from being used for another.
#[derive(Clone)]
pub(crate) struct Earlier {
    key: IdempotencyKey,
    request: Arc<Request>,
}

impl Earlier {
    /// Leaves the key to whoever sends the same request again with these extensions.
    pub(crate) fn leave(key: &IdempotencyKey, copies: &Copies, extensions: &mut Extensions) {
        if let Some(request) = copies.to_request() {
            extensions.insert(Self { key: key.clone(), request: Arc::new(request) });
        }
    }

    fn is_of(&self, request: &Request) -> bool {
        let place = |request: &Request| request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr_range);
        let earlier = &*self.request;
        earlier.method() == request.method() && earlier.url() == request.url() && place(earlier) == place(request)
    }
}
