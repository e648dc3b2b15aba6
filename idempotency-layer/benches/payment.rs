//! A request of 256 bytes to a service that answers 512, through a layer with the memory store.

use std::convert::Infallible;
use std::future::{Ready, ready};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use idempotency_layer::{Idempotency, IdempotencyLayer, MemoryStore, RequestBody, ResponseBody};
use tower::util::{ServiceFn, service_fn};
use tower::{Layer, Service, ServiceExt};

pub(crate) fn request(key: HeaderValue) -> Request<Full<Bytes>> {
    static BODY: [u8; 256] = [b'x'; 256];
    let mut request = Request::new(Full::new(Bytes::from_static(&BODY)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("/payments");
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer 0123456789abcdef"));
    request.headers_mut().insert("idempotency-key", key);
    request
}

/// A handler that costs next to nothing, so that what is measured is the layer.
pub(crate) fn handle<B>(_: Request<B>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    static BODY: [u8; 512] = [b'y'; 512];
    let mut response = Response::new(Full::new(Bytes::from_static(&BODY)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    ready(Ok(response))
}

pub(crate) type Handler = fn(Request<RequestBody<Full<Bytes>>>) -> Ready<Result<Response<Full<Bytes>>, Infallible>>;

pub(crate) fn layered() -> Idempotency<ServiceFn<Handler>, MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new()).anonymous(true).layer(service_fn(handle as Handler))
}

pub(crate) async fn call<S>(service: &mut S, key: HeaderValue) -> Response<ResponseBody<Full<Bytes>>>
where
    S: Service<Request<Full<Bytes>>, Response = Response<ResponseBody<Full<Bytes>>>, Error = Infallible>,
{
    match service.ready().await {
        Ok(service) => service.call(request(key)).await.unwrap_or_else(|never| match never {}),
        Err(never) => match never {},
    }
}
