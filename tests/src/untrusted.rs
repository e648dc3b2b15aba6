//! A TLS server with a certificate that no client has a reason to trust, which counts how far each client goes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::Acceptor;

use crate::door::Door;

/// A running server, for `localhost`. It lives in the runtime that started it, until it is dropped.
#[derive(Debug)]
pub struct Untrusted {
    door: Door,
    certificate: CertificateDer<'static>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    handshakes: AtomicUsize,
    requests: AtomicUsize,
}

impl Untrusted {
    /// Starts one with a certificate that it has signed itself.
    pub async fn start() -> Self {
        let (certificate, config) = configuration();
        let config = Arc::new(config);
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        let door = Door::start(move |stream| serve(stream, Arc::clone(&config), Arc::clone(&counting)));
        Self { door: door.await, certificate, counts }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// `https://localhost` and the port. The certificate has this name, so that only its signature is wrong.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address().port())
    }

    /// What a client would have to trust.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// How many clients have begun a handshake, which is to say something that begins one.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.counts.handshakes.load(Ordering::SeqCst)
    }

    /// How many requests were received, from clients that trust it all the same.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }
}

fn configuration() -> (CertificateDer<'static>, ServerConfig) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let certificate = cert.der().clone();
    // Named, since what else is built could bring another into the process.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions that it knows")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .expect("a key of its certificate");
    (certificate, config)
}

async fn serve(stream: TcpStream, config: Arc<ServerConfig>, counts: Arc<Counts>) {
    let Ok(begun) = LazyConfigAcceptor::new(Acceptor::default(), stream).await else { return };
    counts.handshakes.fetch_add(1, Ordering::SeqCst);
    // The client does not trust it.
    let Ok(stream) = begun.into_stream(config).await else { return };
    let service = service_fn(async |_: Request<Incoming>| {
        counts.requests.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    // A client that breaks off is no concern of the server's.
    drop(Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
