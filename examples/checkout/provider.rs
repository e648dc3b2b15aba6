//! A payment provider that honours idempotency keys, as the documented ones do, and loses one answer after it has
//! charged.
//!
//! The first request under a key charges and writes a line into the ledger; each later one gets the same answer, marked
//! as replayed, or 422 where it asks for something else. A request without a key charges each time.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client_retry::IdempotencyKey;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::script::Loss;
use crate::timeline::{Timeline, shown};

/// A provider that is running.
pub(crate) struct Provider {
    address: SocketAddr,
    desk: Arc<Desk>,
}

struct Desk {
    books: Mutex<Books>,
    /// Somebody waits for a charge, and its answer waits for ever.
    charged: Notify,
    timeline: Timeline,
}

struct Books {
    ledger: Vec<Charge>,
    /// Until it has happened.
    loss: Option<Loss>,
    /// Whether the first charge is made and never answered.
    holds: bool,
}

/// A line of the ledger.
#[derive(Clone)]
pub(crate) struct Charge {
    key: Option<IdempotencyKey>,
    number: usize,
    asked: Asked,
}

/// What is asked for, in the currency's smallest unit.
#[derive(Clone, PartialEq, Deserialize)]
struct Asked {
    amount: i64,
    currency: String,
}

impl Display for Asked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} {}", self.amount / 100, self.amount % 100, self.currency)
    }
}

impl Display for Charge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = self.key.as_ref().map_or("no key".to_owned(), |key| format!("key {}…", key.prefix()));
        write!(f, "ch_{}  {}  {key}", self.number, self.asked)
    }
}

impl Provider {
    pub(crate) async fn start(loss: Loss, holds: bool, timeline: Timeline) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Mutex::new(Books { ledger: Vec::new(), loss: Some(loss), holds });
        let desk = Arc::new(Desk { books, charged: Notify::new(), timeline });
        let behind = Arc::clone(&desk);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let desk = Arc::clone(&behind);
                tokio::spawn(async move {
                    let service = service_fn(|request| desk.answer(request));
                    // A lost answer is an error here, which closes the connection.
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Ok(Self { address, desk })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for a charge that is not answered.
    pub(crate) async fn charged(&self) {
        self.desk.charged.notified().await;
    }

    pub(crate) fn ledger(&self) -> Vec<Charge> {
        self.desk.books().ledger.clone()
    }
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<UnsyncBoxBody<Bytes, Lost>>, Lost> {
        let header = request.headers().get("idempotency-key").cloned();
        let key = header.as_ref().and_then(|value| IdempotencyKey::parse(value).ok());
        let who = shown(header.as_ref());
        // Whoever breaks off here is told nothing and charged nothing.
        let asked = request.into_body().collect().await.map_err(|_| Lost)?.to_bytes();
        let Ok(asked) = serde_json::from_slice::<Asked>(&asked) else {
            return Ok(refusal(StatusCode::BAD_REQUEST));
        };
        let (charge, is_new) = self.books().charge(key, asked.clone());
        if charge.asked != asked {
            return Ok(refusal(StatusCode::UNPROCESSABLE_ENTITY));
        }
        if is_new {
            self.timeline.say("provider", &format!("charges {asked}, {who}"));
            if std::mem::take(&mut self.books().holds) {
                self.charged.notify_one();
                return pending().await;
            }
        }
        let body = Bytes::from(format!(r#"{{"charge": "ch_{}"}}"#, charge.number));
        let loss = self.books().loss.take();
        if let Some(loss) = loss {
            self.timeline.say("provider", &format!("has charged, and its answer {loss}"));
        }
        let mut response = match loss {
            None => Response::new(whole(body)),
            Some(Loss::Closed) => return Err(Lost),
            Some(Loss::Cut) => cut(&body),
            Some(Loss::BadGateway) => return Ok(refusal(StatusCode::BAD_GATEWAY)),
            Some(Loss::Late) => {
                sleep(Duration::from_secs(3)).await;
                Response::new(whole(body))
            }
        };
        if !is_new {
            response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        *response.status_mut() = StatusCode::CREATED;
        Ok(response)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// The charge under this key, and whether it is made now.
    fn charge(&mut self, key: Option<IdempotencyKey>, asked: Asked) -> (Charge, bool) {
        let earlier = self.ledger.iter().find(|charge| key.is_some() && charge.key == key);
        if let Some(charge) = earlier {
            return (charge.clone(), false);
        }
        let charge = Charge { key, number: self.ledger.len() + 1, asked };
        self.ledger.push(charge.clone());
        (charge, true)
    }
}

fn refusal(status: StatusCode) -> Response<UnsyncBoxBody<Bytes, Lost>> {
    let mut response = Response::new(whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, Lost> {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Half of the body, of which the head announces all.
fn cut(body: &Bytes) -> Response<UnsyncBoxBody<Bytes, Lost>> {
    let half = stream::iter([Ok(Frame::data(body.slice(..body.len() / 2))), Err(Lost)]);
    let mut response = Response::new(StreamBody::new(half).boxed_unsync());
    response.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    response
}

/// The answer does not arrive.
#[derive(Debug)]
struct Lost;

impl Display for Lost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is lost")
    }
}

impl Error for Lost {}
