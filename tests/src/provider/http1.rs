//! HTTP/1.1: hyper reads the requests and writes whole answers; what is broken is written to the socket after hyper has left
//! it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::answer::Answer;
use super::desk::{Desk, Reply, Visit};
use super::fault::Ending;
use super::line::Line;

/// How hyper is to be interrupted.
enum Cut {
    Reset,
    /// This much, then FIN.
    Close(Vec<u8>),
    /// This much, then nothing.
    Stall(Vec<u8>),
}

/// Serves a connection to its end.
pub(super) async fn serve(mut line: Line, desk: Arc<Desk>, connection: usize) {
    let (cut, mut cuts) = mpsc::channel(1);
    let service = service_fn(|request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let visit = desk.arrive(&head, connection);
        respond(visit, body, cut.clone())
    });
    let served = Builder::new().serve_connection(TokioIo::new(line.clone()), service);
    // Whichever comes first, hyper leaves the line.
    let cut = tokio::select! {
        Some(cut) = cuts.recv() => cut,
        // A client that breaks off is no concern of the provider's.
        _ended = served => Cut::Close(Vec::new()),
    };
    match cut {
        Cut::Reset => line.reset(),
        Cut::Close(last) => {
            // The client may have gone.
            drop(line.write_all(&last).await);
            line.close().await;
        }
        Cut::Stall(last) => {
            drop(line.write_all(&last).await);
            line.stall().await;
        }
    }
}

/// Gives a whole answer, or cuts the connection and gives none.
async fn respond(
    visit: Visit,
    body: Incoming,
    cut: mpsc::Sender<Cut>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let body = async { body.collect().await.ok().map(|body| body.to_bytes()) };
    let broken = match visit.serve(body).await {
        Some(Reply::Whole(answer)) => {
            visit.answers(answer.status);
            return Ok(answer.response());
        }
        Some(Reply::Broken(ending, own)) => broken(&visit, &ending, own),
        None => Cut::Close(Vec::new()),
    };
    // Received by whoever drops this future then.
    drop(cut.send(broken).await);
    pending().await
}

fn broken(visit: &Visit, ending: &Ending, own: Option<Answer>) -> Cut {
    let own = match (ending, own) {
        (Ending::Reset, _) => return Cut::Reset,
        (Ending::Close, _) => return Cut::Close(Vec::new()),
        (_, Some(own)) => own,
        (_, None) => panic!("{ending:?} breaks an answer, and there is none"),
    };
    let head = own.head_bytes(&format!("content-length: {}", own.body.len()));
    if let Ending::HalfHead = ending {
        return Cut::Close(head[..head.len() / 2].to_owned());
    }
    visit.answers(own.status);
    let half = [&head, &own.half()[..]].concat();
    match ending {
        Ending::ShortBody => Cut::Close(half),
        Ending::Stall => Cut::Stall(half),
        Ending::OpenChunks => {
            let size = format!("{:x}\r\n", own.body.len());
            let head = own.head_bytes("transfer-encoding: chunked");
            Cut::Close([&head, size.as_bytes(), &own.body, b"\r\n"].concat())
        }
        other => panic!("{other:?} is none of HTTP/1.1"),
    }
}
