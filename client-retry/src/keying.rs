//! A call has one key on every attempt because the key is chosen before the first: here is decided
//! which it is.
//!
//! 1. The header that the caller has set.
//! 2. The [`IdempotencyKey`] among the request's extensions.
//! 3. For the methods that are keyed: the key that this call had when the same request came through before, for
//!    somebody outside of this middleware may retry as well.
//! 4. For the same methods: the key that the [`Propagation`] among the extensions, or else the current one, derives
//!    from where the call goes.
//! 5. For the same methods: a random one.
//!
//! The first two also key a method that is not keyed by itself. Where both are there and differ, where a value cannot
//! be read, where it is the parent key of the run that must not leave the service, and where the propagation has
//! derived the same key for another call of this run, nothing is sent.
//!
//! The header is written anew in the configured [`KeyFormat`], so that every key has one spelling.

use std::sync::Arc;

use http::{Extensions, HeaderName, Method};
use idempotency_shared::{IDEMPOTENCY_KEY, IdempotencyKey, KeyLimit, Propagation};
use reqwest::{Body, Request};

use crate::copies::Copies;
use crate::{Error, KeyFormat, NoIdempotencyKey, current};

/// Which calls get a key, and how it is written.
#[derive(Clone, Debug)]
pub(crate) struct Keying {
    pub(crate) header: HeaderName,
    pub(crate) format: KeyFormat,
    pub(crate) methods: Vec<Method>,
}

impl Keying {
    /// Writes the key of the call into its header; `None` where the call has none.
    pub(crate) fn key(
        &self,
        request: &mut Request,
        extensions: &Extensions,
        propagation: Option<&Propagation>,
    ) -> Result<Option<Chosen>, Error> {
        if extensions.get::<NoIdempotencyKey>().is_some() {
            return Ok(None);
        }
        let Some(chosen) = self.choose(request, extensions, propagation)? else {
            return Ok(None);
        };
        request.headers_mut().insert(self.header.clone(), self.format.write(&chosen.key));
        Ok(Some(chosen))
    }

    /// The key in the header of the request.
    fn written(&self, request: &Request) -> Result<Option<IdempotencyKey>, Error> {
        let headers = request.headers();
        // To look at each of a few names costs less than to hash the one.
        if !headers.keys().any(|name| *name == self.header) {
            return Ok(None);
        }
        IdempotencyKey::from_headers(headers, &self.header, KeyLimit::default())
            .map_err(|error| Error::invalid_key(request, &self.header, error))
    }

    fn choose(
        &self,
        request: &Request,
        extensions: &Extensions,
        propagation: Option<&Propagation>,
    ) -> Result<Option<Chosen>, Error> {
        let written = self.written(request)?;
        match (written, extensions.get::<IdempotencyKey>()) {
            (Some(written), Some(extension)) if written != *extension => {
                return Err(Error::two_keys(request, &self.header));
            }
            (Some(key), _) => return given(key, request, extensions).map(Some),
            (None, Some(key)) => return given(key.clone(), request, extensions).map(Some),
            (None, None) => {}
        }
        if !self.methods.contains(request.method()) {
            return Ok(None);
        }
        let key = match (extensions.get::<Earlier>(), propagation) {
            (Some(earlier), propagation) if earlier.is_of(request, propagation) => earlier.key.clone(),
            (_, Some(propagation)) => derived(propagation, request)?,
            (_, None) => IdempotencyKey::random(),
        };
        Ok(Some(Chosen { key, run: propagation.cloned(), is_given: false }))
    }
}

/// The key of a call.
#[derive(Debug)]
pub(crate) struct Chosen {
    key: IdempotencyKey,
    /// The run that the call is made for.
    run: Option<Propagation>,
    /// Whether its caller has it, and gives it again to whatever repeats the call.
    is_given: bool,
}

/// The propagation of the request that a call is made for.
///
/// What a middleware asks for within an attempt, such as a token, is no call of the run's: it may ask again with each
/// attempt, and gets random keys.
pub(crate) fn propagation(extensions: &Extensions) -> Option<Propagation> {
    extensions.get().cloned().or_else(|| Propagation::current().filter(|_| !current::is_attempt()))
}

/// The key of the inbound request is a handle to its caller's answer, and must not leave the service.
fn given(key: IdempotencyKey, request: &Request, extensions: &Extensions) -> Result<Chosen, Error> {
    match extensions.get().cloned().or_else(Propagation::current) {
        Some(propagation) if *propagation.parent_key() == key => Err(Error::parent_key(request)),
        _ => Ok(Chosen { key, run: None, is_given: true }),
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

/// What a call leaves in its caller's extensions, unless it succeeds: the key that was made for it, when it fails and
/// when it is dropped.
pub(crate) struct Legacy<'a> {
    pub(crate) extensions: &'a mut Extensions,
    pub(crate) copies: Copies<'a>,
    chosen: Option<Chosen>,
}

impl<'a> Legacy<'a> {
    pub(crate) fn new(chosen: Option<Chosen>, copies: Copies<'a>, extensions: &'a mut Extensions) -> Self {
        Self { extensions, copies, chosen }
    }

    pub(crate) fn key(&self) -> Option<&IdempotencyKey> {
        self.chosen.as_ref().map(|chosen| &chosen.key)
    }

    /// Leaves nothing, nor what an earlier call has left: this one has succeeded, and nobody will repeat it.
    pub(crate) fn take_key(&mut self) -> Option<IdempotencyKey> {
        self.extensions.remove::<Earlier>();
        self.chosen.take().map(|chosen| chosen.key)
    }
}

impl Drop for Legacy<'_> {
    fn drop(&mut self) {
        if let Some(Chosen { key, run, is_given: false }) = self.chosen.take()
            && let Some(request) = self.copies.to_request()
        {
            self.extensions.insert(Earlier { key, run, request: Arc::new(request) });
        }
    }
}

/// The key that a request had when it came through before.
///
/// A retry outside of this middleware sends the same request again, with the same extensions and in the same run: same
/// method, same URL, and a body in the same place of memory, which this keeps from being used for another. Of a static
/// body, or none, equal calls cannot be told apart until one succeeds.
#[derive(Clone)]
struct Earlier {
    key: IdempotencyKey,
    run: Option<Propagation>,
    request: Arc<Request>,
}

impl Earlier {
    fn is_of(&self, request: &Request, propagation: Option<&Propagation>) -> bool {
        let is_same_run = match (&self.run, propagation) {
            (Some(run), Some(propagation)) => run.is_same_run(propagation),
            (run, propagation) => run.is_none() && propagation.is_none(),
        };
        let place = |request: &Request| request.body().and_then(Body::as_bytes).map(<[u8]>::as_ptr_range);
        let earlier = &*self.request;
        is_same_run
            && earlier.method() == request.method()
            && earlier.url() == request.url()
            && place(earlier) == place(request)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use http::HeaderValue;
    use reqwest::Url;

    use super::*;
    use crate::ErrorKind;

    fn post() -> Request {
        Request::new(Method::POST, Url::parse("https://pay.example/charges?token=secret").unwrap())
    }

    fn with_header(values: &[&[u8]]) -> Request {
        let mut request = post();
        for value in values {
            request.headers_mut().append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        request
    }

    fn key(key: &str) -> IdempotencyKey {
        IdempotencyKey::new(key).unwrap()
    }

    fn extensions<T: Clone + Send + Sync + 'static>(extension: T) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(extension);
        extensions
    }

    fn run() -> Propagation {
        Propagation::builder("order:create", key("parent")).build()
    }

    fn keyed(request: &mut Request, extensions: &Extensions) -> Result<Option<IdempotencyKey>, Error> {
        let chosen = Keying::default().key(request, extensions, propagation(extensions).as_ref())?;
        Ok(chosen.map(|chosen| chosen.key))
    }

    /// What is in the header after a key was chosen.
    fn sent(mut request: Request, extensions: &Extensions) -> Vec<String> {
        let chosen = keyed(&mut request, extensions).unwrap();
        let values = request.headers().get_all(IDEMPOTENCY_KEY).iter();
        let values: Vec<String> = values.map(|value| value.to_str().unwrap().to_owned()).collect();
        assert_eq!(chosen.map(|key| key.as_str().to_owned()).as_slice(), values);
        values
    }

    fn refused(mut request: Request, extensions: &Extensions) -> Error {
        keyed(&mut request, extensions).unwrap_err()
    }

    /// Fails when `choose` asks in any other order.
    #[test]
    fn header_goes_before_extension_before_derived_before_random() {
        let propagation = run();
        let mut all = extensions(propagation.clone());
        assert_eq!(sent(with_header(&[b"header"]), &all), ["header"]);
        all.insert(key("extension"));
        assert_eq!(sent(post(), &all), ["extension"]);
        assert!(!propagation.has_given_key(), "nothing needed to be derived");

        let derived = run().ambient(&Method::POST, "https://pay.example", "/charges").key().unwrap();
        assert_eq!(sent(post(), &extensions(propagation)), [derived.as_str()]);

        let random = [sent(post(), &Extensions::new()), sent(post(), &Extensions::new())];
        assert_ne!(random[0], random[1]);
    }

    /// Fails when `propagation` asks for the current one first, or not at all.
    #[tokio::test]
    async fn extension_goes_before_the_current_propagation() {
        let current = run();
        let (derived, other) = current
            .around(async {
                let explicit = Propagation::builder("another", key("parent")).build();
                (sent(post(), &Extensions::new()), sent(post(), &extensions(explicit)))
            })
            .await;
        assert!(current.has_given_key());
        assert_ne!(derived, other);
    }

    /// Fails when `choose` mints keys for every method, or reads none for a method without.
    #[test]
    fn only_post_and_patch_get_a_key_of_their_own() {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let request = || Request::new(method.clone(), post().url().clone());
            assert!(sent(request(), &extensions(run())).is_empty(), "{method}");
            assert_eq!(sent(request(), &extensions(key("mine"))), ["mine"], "{method}");
        }
        let patch = Request::new(Method::PATCH, post().url().clone());
        assert_eq!(sent(patch, &Extensions::new()).len(), 1);
    }

    /// Fails when `key` takes the header for absent.
    #[test]
    fn call_without_a_key_is_left_as_it_is() {
        let mut request = with_header(&[b"not, a key"]);
        assert_eq!(keyed(&mut request, &extensions(NoIdempotencyKey)).unwrap(), None);
        assert_eq!(request.headers()[IDEMPOTENCY_KEY], "not, a key");
    }

    /// Fails when `key` leaves the header as the caller wrote it.
    #[test]
    fn key_of_the_caller_has_one_spelling() {
        for value in [&b"abc"[..], b" abc ", br#""abc""#, br#" "abc";v=1 "#] {
            assert_eq!(sent(with_header(&[value]), &Extensions::new()), ["abc"]);
        }
        assert_eq!(sent(with_header(&[b"abc"]), &extensions(key("abc"))), ["abc"]);
    }

    /// Fails when `from_headers` is asked for the first value only.
    #[test]
    fn key_that_cannot_be_read_is_an_error() {
        for values in [&[&b"a"[..], b"a"][..], &[b""], &[b"a b"], &[&[b'a'; 256]], &["ключ".as_bytes()], &[br#""a"#]]
        {
            let error = refused(with_header(values), &Extensions::new());
            assert_eq!(error.kind(), ErrorKind::InvalidKey);
            assert!(error.source().is_some());
            assert_eq!(
                error.to_string(),
                "POST https://pay.example/charges was not sent: its idempotency-key header cannot be used; set it \
                 once, to 1 to 255 visible ASCII characters, or leave it out and have a key made"
            );
        }
    }

    /// Fails when `choose` prefers the header without a look at the extension.
    #[test]
    fn two_keys_are_an_error_that_shows_neither() {
        let error = refused(with_header(&[b"one-key-of-many"]), &extensions(key("another-key-of-many")));
        assert_eq!(error.kind(), ErrorKind::TwoKeys);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("hold different keys; give it one of them"), "{shown}");
        for hidden in ["key-of-many", "one-key", "another", "token", "secret"] {
            assert!(!shown.contains(hidden), "{hidden}: {shown}");
        }
    }

    /// Fails when `derived` counts equal calls.
    #[test]
    fn equal_calls_of_one_run_are_an_error() {
        let run = extensions(run());
        assert_eq!(sent(post(), &run).len(), 1);
        let error = refused(post(), &run);
        assert_eq!(error.kind(), ErrorKind::DerivedKeyReused);
        assert!(error.to_string().contains("name both, with Propagation::operation"), "{error}");
        assert!(error.source().is_some());
    }

    /// Fails when `Earlier` is not asked, or takes every request for the same.
    #[test]
    fn request_that_comes_through_again_has_its_key_again() {
        let mut first = post();
        *first.body_mut() = Some(Body::from("a charge of 1050 EUR".to_owned()));
        let again = first.try_clone().unwrap();
        let mut extensions = extensions(run());
        let propagation = extensions.get::<Propagation>().cloned();
        let chosen = Keying::default().key(&mut first, &extensions, propagation.as_ref()).unwrap().unwrap();
        let key = chosen.key.clone();
        drop(Legacy::new(Some(chosen), Copies::new(&mut first), &mut extensions));
        assert_eq!(sent(again, &extensions), [key.as_str()]);

        let mut equal = post();
        *equal.body_mut() = Some(Body::from("a charge of 1050 EUR".to_owned()));
        extensions.remove::<Propagation>();
        assert_ne!(sent(equal, &extensions), [key.as_str()], "another call with an equal body");
        assert_ne!(sent(post(), &extensions), [key.as_str()], "another call");
    }

    /// Fails when `take_key` leaves what an earlier call has left, or `is_of` does not ask for the run.
    #[test]
    fn key_of_an_earlier_call_is_for_its_repetition_only() {
        let left = |extensions: &mut Extensions| {
            let mut first = post();
            let propagation = extensions.get::<Propagation>().cloned();
            let chosen = Keying::default().key(&mut first, extensions, propagation.as_ref()).unwrap().unwrap();
            let key = chosen.key.clone();
            drop(Legacy::new(Some(chosen), Copies::new(&mut first), extensions));
            key
        };
        let mut extensions = Extensions::new();
        let key = left(&mut extensions);
        let mut another = extensions.clone();
        another.insert(run());
        assert_ne!(sent(post(), &another), [key.as_str()], "a call of a run");
        let mut again = post();
        let chosen = Keying::default().key(&mut again, &extensions, None).unwrap();
        assert_eq!(Legacy::new(chosen, Copies::new(&mut again), &mut extensions).take_key(), Some(key.clone()));
        assert_ne!(sent(post(), &extensions), [key.as_str()], "the next call");
    }
}
