//! What reqwest reports as an error is put among the [`TransportFailure`]s by the kind it has and by
//! the errors of hyper, h2 and the operating system that caused it.
//!
//! - An error before there was a connection says that nothing was sent, and which of the ways it was.
//! - An error within the body of a response never says so, whatever the peer claims: it has begun to
//!   answer.
//! - Of HTTP/2, only what the *peer* sent counts as a refusal. `GOAWAY` refuses the streams that it
//!   does not cover; those that it covers end with the connection, and are ambiguous.
//! - What is not recognized is [`TransportFailure::Other`], and ambiguous.
//!
//! A certificate is recognized as rustls reports it, as invalid data while connecting, which
//! hyper-rustls wraps once more. With native-tls a bad certificate is [`TransportFailure::Connect`], and
//! the attempt is repeated.
//!
//! Over HTTP/2, hyper takes a body that breaks off with `NO_ERROR` for a whole one, even where it is
//! shorter than `Content-Length`, and there is no error to classify. Whoever needs the whole body
//! compares the two.
//!
//! hyper does not promise the types of its sources. The tests meet each of them over a socket, except
//! for TLS, whose errors they make up in the shape that hyper-rustls 0.27 gives them.

#[cfg(test)]
mod peer;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

use h2::Reason;

use super::TransportFailure;

impl TransportFailure {
    /// Which failure `error` is, where a client got it from sending a request or reading a response.
    ///
    /// reqwest does not say which of several hops failed. Whoever lets it follow redirects notes that
    /// it followed one, and asks for [`after_redirect`](Self::after_redirect).
    ///
    /// An error that stands for a status, of `error_for_status`, is [`Other`](Self::Other): the
    /// response itself tells more.
    #[must_use]
    pub fn of(error: &::reqwest::Error) -> Self {
        if error.is_builder() {
            Self::Builder
        } else if error.is_redirect() {
            Self::Redirect
        } else if error.is_body() || error.is_decode() {
            Self::of_response_body(error)
        } else if is_of_request_body(error) {
            Self::RequestBody
        } else if error.is_dns() {
            Self::Dns
        } else if error.is_connect() {
            Self::of_connect(error)
        } else if error.is_timeout() {
            Self::Timeout
        } else {
            causes(error).find_map(Self::of_cause).unwrap_or(Self::Other)
        }
    }

    fn of_connect(error: &::reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::ConnectTimeout;
        }
        match causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(innermost_kind) {
            Some(ErrorKind::ConnectionRefused) => Self::ConnectionRefused,
            Some(ErrorKind::InvalidData) => Self::Certificate,
            _ => Self::Connect,
        }
    }

    fn of_response_body(error: &::reqwest::Error) -> Self {
        if error.is_timeout() {
            Self::Timeout
        } else if causes(error).any(|cause| cause.is::<hyper::Error>() || cause.is::<h2::Error>()) {
            Self::TruncatedBody
        } else {
            Self::Decode
        }
    }

    fn of_cause(cause: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            return Self::of_hyper(error);
        }
        if let Some(error) = cause.downcast_ref::<h2::Error>() {
            return Some(Self::of_h2(error));
        }
        cause.downcast_ref::<io::Error>().and_then(Self::of_io)
    }

    /// `None` where the cause tells more.
    fn of_hyper(error: &hyper::Error) -> Option<Self> {
        if error.is_canceled() {
            // hyper says so only of a request of which it has written nothing.
            Some(Self::Unsent)
        } else if error.is_incomplete_message() {
            Some(Self::Closed)
        } else if error.is_parse() {
            Some(Self::Protocol)
        } else {
            None
        }
    }

    fn of_h2(error: &h2::Error) -> Self {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => Self::RefusedStream,
            Some(Reason::NO_ERROR) if error.is_remote() && error.is_go_away() => Self::GoAway,
            Some(_) if error.is_remote() => Self::Reset,
            Some(_) => Self::Protocol,
            None => error.get_io().and_then(Self::of_io).unwrap_or(Self::Other),
        }
    }

    fn of_io(error: &io::Error) -> Option<Self> {
        match innermost_kind(error) {
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Some(Self::Reset),
            ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Some(Self::Closed),
            _ => None,
        }
    }
}

/// `source` of an `io::Error` leaves out the one that it wraps.
fn innermost_kind(error: &io::Error) -> ErrorKind {
    match error.get_ref().and_then(|wrapped| wrapped.downcast_ref()) {
        Some(wrapped) => innermost_kind(wrapped),
        None => error.kind(),
    }
}

/// Expects an error that is none of the response's body.
fn is_of_request_body(error: &::reqwest::Error) -> bool {
    causes(error).any(|cause| cause.downcast_ref::<::reqwest::Error>().is_some_and(::reqwest::Error::is_body))
}

fn causes(error: &::reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(error.source(), |cause| (*cause).source())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::reqwest::redirect::Policy;
    use ::reqwest::{Body, Client, ClientBuilder};
    use bytes::Bytes;
    use futures_util::stream;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tower::BoxError;
    use tower::util::MapErrLayer;

    use super::peer::{
        CANCEL, INTERNAL_ERROR, NO_ERROR, Names, OK, REFUSED_STREAM, answer_with_frames, closed_port, go_away,
        read_head, reset, server,
    };
    use super::*;

    fn client() -> ClientBuilder {
        Client::builder().no_proxy().retry(::reqwest::retry::never())
    }

    /// What becomes of a POST, its response included.
    async fn post(client: ClientBuilder, url: &str) -> TransportFailure {
        TransportFailure::of(&read(client, url).await.unwrap_err())
    }

    async fn read(client: ClientBuilder, url: &str) -> ::reqwest::Result<Bytes> {
        client.build().unwrap().post(url).body("{}").send().await?.bytes().await
    }

    async fn answered_with_frames(frames: Vec<u8>) -> ::reqwest::Result<Bytes> {
        let (url, server) = server(|socket| answer_with_frames(socket, frames)).await;
        let read = read(client().http2_prior_knowledge(), &url).await;
        server.await.unwrap();
        read
    }

    async fn answered_with(answer: &'static str) -> TransportFailure {
        TransportFailure::of(&read_answer(client(), answer.to_owned()).await.unwrap_err())
    }

    async fn read_answer(client: ClientBuilder, answer: String) -> ::reqwest::Result<Bytes> {
        let (url, server) = server(|mut socket| async move {
            read_head(&mut socket).await;
            socket.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let read = read(client, &url).await;
        server.await.unwrap();
        read
    }

    /// Fails when `of` does not ask `is_builder`.
    #[tokio::test]
    async fn what_is_no_url_is_not_built() {
        for url in ["", "no url", "ftp://localhost/"] {
            assert_eq!(post(client(), url).await, TransportFailure::Builder, "{url}");
        }
    }

    /// Fails when `of` asks `is_connect` before `is_dns`.
    #[tokio::test]
    async fn name_without_address_is_dns() {
        let names = client().dns_resolver(Arc::new(Names(Some(ErrorKind::NotFound))));
        assert_eq!(post(names, "http://provider.invalid/").await, TransportFailure::Dns);
    }

    /// Fails when `of` asks `is_timeout` before `is_connect`.
    #[tokio::test(start_paused = true)]
    async fn connection_that_takes_too_long_is_connect_timeout() {
        let names = client().dns_resolver(Arc::new(Names(None))).connect_timeout(Duration::from_secs(3));
        assert_eq!(post(names, "http://provider.invalid/").await, TransportFailure::ConnectTimeout);
    }

    /// Fails when `of_connect` does not look at the cause.
    #[tokio::test]
    async fn port_that_nobody_listens_at_is_refused() {
        assert_eq!(post(client(), &closed_port().await).await, TransportFailure::ConnectionRefused);
    }

    /// Fails when `of_connect` takes `InvalidData` for `Connect`, or asks the outermost error for its
    /// kind.
    #[tokio::test]
    async fn invalid_data_while_connecting_is_the_certificate() {
        for (kind, failure) in [
            (ErrorKind::InvalidData, TransportFailure::Certificate),
            (ErrorKind::UnexpectedEof, TransportFailure::Connect),
            (ErrorKind::ConnectionReset, TransportFailure::Connect),
        ] {
            let handshake = move || io::Error::new(kind, "of the handshake");
            let bare = MapErrLayer::new(move |_| handshake().into());
            assert_eq!(post(client().connector_layer(bare), "http://127.0.0.1:1/").await, failure);
            let wrapped = MapErrLayer::new(move |_| io::Error::other(handshake()).into());
            assert_eq!(post(client().connector_layer(wrapped), "http://127.0.0.1:1/").await, failure);
        }
    }

    /// Fails when `of` does not ask `is_timeout`.
    #[tokio::test(start_paused = true)]
    async fn answer_that_takes_too_long_is_timeout() {
        let (url, server) = server(|mut socket| async move { while socket.read_u8().await.is_ok() {} }).await;
        assert_eq!(post(client().timeout(Duration::from_secs(3)), &url).await, TransportFailure::Timeout);
        server.await.unwrap();
    }

    /// Fails when `of_response_body` does not ask `is_timeout`.
    #[tokio::test(start_paused = true)]
    async fn body_that_takes_too_long_is_timeout() {
        let (url, server) = server(|mut socket| async move {
            read_head(&mut socket).await;
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
            while socket.read_u8().await.is_ok() {}
        })
        .await;
        let client = client().timeout(Duration::from_secs(3)).build().unwrap();
        let response = client.post(url).body("{}").send().await.unwrap();
        let error = response.bytes().await.unwrap_err();
        assert_eq!(TransportFailure::of(&error), TransportFailure::Timeout);
        server.await.unwrap();
    }

    /// Fails when `of_io` does not know `ConnectionReset`.
    #[tokio::test]
    async fn reset_before_the_response_is_reset() {
        let (url, server) = server(|socket| async move {
            // What arrived and was not read makes the kernel reset the connection.
            socket.peek(&mut [0]).await.unwrap();
            drop(socket);
        })
        .await;
        assert_eq!(post(client(), &url).await, TransportFailure::Reset);
        server.await.unwrap();
    }

    /// Fails when `of_hyper` does not ask `is_incomplete_message`.
    #[tokio::test]
    async fn end_before_or_within_the_headers_is_closed() {
        assert_eq!(answered_with("").await, TransportFailure::Closed);
        assert_eq!(answered_with("HTTP/1.1 200 OK\r\ncontent-le").await, TransportFailure::Closed);
    }

    /// Fails when `of` does not ask `is_decode`.
    #[tokio::test]
    async fn end_within_the_body_is_a_truncated_body() {
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
        assert_eq!(answered_with(cut).await, TransportFailure::TruncatedBody);
        let cut = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab";
        assert_eq!(answered_with(cut).await, TransportFailure::TruncatedBody);
    }

    /// Fails when `of_hyper` does not ask `is_parse`.
    #[tokio::test]
    async fn other_protocols_are_protocol() {
        assert_eq!(answered_with("SSH-2.0-OpenSSH_9.2\r\n\r\n").await, TransportFailure::Protocol);
    }

    /// Fails when `of` does not ask `is_redirect`.
    #[tokio::test]
    async fn redirect_beyond_the_policy_is_redirect() {
        let answer = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
        let error = read_answer(client().redirect(Policy::limited(0)), answer.to_owned()).await.unwrap_err();
        assert_eq!(TransportFailure::of(&error), TransportFailure::Redirect);
    }

    /// Fails when reqwest comes to tell them apart, so that `of` can.
    #[tokio::test]
    async fn failure_after_a_redirect_looks_like_one_of_the_first_hop() {
        let next = closed_port().await;
        let answer = format!("HTTP/1.1 303 See Other\r\nlocation: {next}\r\ncontent-length: 0\r\n\r\n");
        let error = read_answer(client(), answer).await.unwrap_err();
        assert_ne!(error.url().map(|url| url.as_str()), Some(&*next));
        let failure = TransportFailure::of(&error);
        assert_eq!(failure, TransportFailure::ConnectionRefused);
        assert_eq!(failure.after_redirect(), TransportFailure::AfterRedirect);
    }

    /// Fails when `of_response_body` is always `TruncatedBody`.
    #[tokio::test]
    async fn whole_body_that_is_no_json_is_decode() {
        let (url, server) = server(|mut socket| async move {
            read_head(&mut socket).await;
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{").await.unwrap();
        })
        .await;
        let response = client().build().unwrap().post(url).body("{}").send().await.unwrap();
        let error = response.json::<serde_json::Value>().await.unwrap_err();
        assert_eq!(TransportFailure::of(&error), TransportFailure::Decode);
        server.await.unwrap();
    }

    /// Fails when `of` asks `is_connect` before `is_of_request_body`, since what the body is read from
    /// may be another server.
    #[tokio::test]
    async fn request_body_that_breaks_off_is_request_body() {
        let elsewhere = client().build().unwrap().get(closed_port().await).send().await.unwrap_err();
        assert_eq!(TransportFailure::of(&elsewhere), TransportFailure::ConnectionRefused);
        for cause in [elsewhere.into(), BoxError::from("the file is gone")] {
            let (url, server) = server(|mut socket| async move { while socket.read_u8().await.is_ok() {} }).await;
            let body = Body::wrap_stream(stream::iter([Ok("{"), Err(cause)]));
            let error = client().build().unwrap().post(url).body(body).send().await.unwrap_err();
            assert_eq!(TransportFailure::of(&error), TransportFailure::RequestBody, "{error:?}");
            server.await.unwrap();
        }
    }

    /// Fails when `of_h2` does not ask for either reason, or takes a stream that `GOAWAY` covers for
    /// one that it refuses.
    #[tokio::test]
    async fn stream_is_refused_only_by_what_says_so() {
        use TransportFailure::{Closed, GoAway, RefusedStream, Reset};
        for (frames, failure) in [
            (reset(REFUSED_STREAM), RefusedStream),
            (reset(CANCEL), Reset),
            (reset(INTERNAL_ERROR), Reset),
            (go_away(0, NO_ERROR), GoAway),
            (go_away(0, INTERNAL_ERROR), Reset),
            (go_away(1, NO_ERROR), Closed),
            (Vec::new(), Closed),
        ] {
            let error = answered_with_frames(frames.clone()).await.unwrap_err();
            assert_eq!(TransportFailure::of(&error), failure, "{frames:?}");
        }
    }

    /// Fails when `of` asks the causes before `is_decode`.
    #[tokio::test]
    async fn stream_that_has_begun_to_answer_is_not_refused() {
        for frames in [reset(REFUSED_STREAM), reset(CANCEL), go_away(0, INTERNAL_ERROR), Vec::new()] {
            let error = answered_with_frames([OK, &frames].concat()).await.unwrap_err();
            assert_eq!(TransportFailure::of(&error), TransportFailure::TruncatedBody, "{frames:?}");
        }
    }

    /// Fails when hyper mends it, which makes a sentence of the module docs wrong.
    #[tokio::test]
    async fn body_that_breaks_off_without_an_error_looks_whole() {
        for frames in [reset(NO_ERROR), go_away(0, NO_ERROR)] {
            let body = answered_with_frames([OK, &frames].concat()).await.unwrap();
            assert!(body.is_empty(), "{frames:?}");
        }
    }

    /// Fails when `of_hyper` does not ask `is_canceled`.
    #[tokio::test]
    async fn request_that_no_connection_took_is_unsent() {
        let (client, server) = tokio::io::duplex(64);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
        let sent = sender.send_request(http::Request::new(String::new()));
        drop((connection, server));
        let error = sent.await.unwrap_err();
        assert_eq!(TransportFailure::of_hyper(&error), Some(TransportFailure::Unsent));
    }
}
