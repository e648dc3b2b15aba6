//! HTTP/2 with prior knowledge, frame by frame: which stream is answered, reset or passed over, and when the connection goes.
//!
//! The connection is asked before the cuts are, each time: h2 writes what a stream was given before the stream is reset or
//! the connection goes, instead of dropping it.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream, StreamId};
use http::Method;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answer::Answer;
use super::desk::{Desk, Reply, Visit};
use super::fault::{Ending, Moment};
use super::line::Line;

/// What a stream needs its connection for.
enum Cut {
    Reset,
    Close,
    Stream(SendStream<Bytes>, Reason),
    Connection(Reason),
}

/// Serves a connection to its end.
pub(super) async fn serve(mut line: Line, desk: Arc<Desk>, connection: usize) {
    // A client that breaks off is no concern of the provider's.
    let Ok(mut served) = Builder::new().handshake(line.clone()).await else { return };
    let (cut, mut cuts) = mpsc::channel(1);
    let mut streams = JoinSet::new();
    // To drop them would reset their streams.
    let mut passed_over = Vec::new();
    loop {
        tokio::select! {
            biased;
            accepted = served.accept() => {
                let Some(Ok((request, respond))) = accepted else { break };
                if !passed_over.is_empty() {
                    passed_over.push(respond);
                    continue;
                }
                let (head, body) = request.into_parts();
                let visit = desk.arrive(&head, connection);
                if let Some(Ending::GoAway(reason)) = visit.strikes(Moment::Unread) {
                    // Nothing of h2's is half written: it is asked first, and what it writes here is small.
                    let last = line.write_all(&go_away_before(respond.stream_id(), reason)).await;
                    passed_over.push(respond);
                    if last.is_err() {
                        break;
                    }
                    continue;
                }
                streams.spawn(respond_to(visit, head.method, body, respond, cut.clone()));
            }
            Some(cut) = cuts.recv() => match cut {
                Cut::Reset => {
                    drop(served);
                    return line.reset();
                }
                Cut::Close => break,
                Cut::Stream(mut stream, reason) => stream.send_reset(reason),
                Cut::Connection(reason) => served.abrupt_shutdown(reason),
            },
            Some(ended) = streams.join_next() => ended.expect("a stream that does not panic"),
        }
    }
    drop(served);
    line.close().await;
}

/// A GOAWAY frame (RFC 9113, section 6.8) that names the stream before this one as the last that is processed. h2 always
/// names the last that has come.
fn go_away_before(stream: StreamId, reason: Reason) -> [u8; 17] {
    let last = stream.as_u32().saturating_sub(2).to_be_bytes();
    let code = u32::from(reason).to_be_bytes();
    let mut frame = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[9..13].copy_from_slice(&last);
    frame[13..].copy_from_slice(&code);
    frame
}

async fn respond_to(
    visit: Visit,
    method: Method,
    body: RecvStream,
    mut respond: SendResponse<Bytes>,
    cut: mpsc::Sender<Cut>,
) {
    let cut_off = match visit.serve(read(body)).await {
        Some(Reply::Whole(answer)) => {
            visit.answers(answer.status);
            return send(&mut respond, &answer, &method);
        }
        Some(Reply::Broken(Ending::ResetStream(reason), _)) => return respond.send_reset(reason),
        Some(Reply::Broken(Ending::Reset, _)) => Cut::Reset,
        Some(Reply::Broken(Ending::Close, _)) => Cut::Close,
        Some(Reply::Broken(ending, Some(own))) => {
            visit.answers(own.status);
            let Some(stream) = send_half(&mut respond, &own) else { return };
            match ending {
                Ending::BreakStream(reason) => Cut::Stream(stream, reason),
                Ending::BreakConnection(reason) => Cut::Connection(reason),
                Ending::Stall => return pending().await,
                other => panic!("{other:?} is none of HTTP/2"),
            }
        }
        Some(Reply::Broken(ending, None)) => panic!("{ending:?} breaks an answer, and there is none"),
        // The client has reset it.
        None => return,
    };
    // The connection may have ended.
    drop(cut.send(cut_off).await);
    // To drop the stream would reset it.
    pending().await
}

/// The whole body, unless the client breaks off.
async fn read(mut body: RecvStream) -> Option<Bytes> {
    let mut whole = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        whole.extend(data);
    }
    Some(whole.into())
}

/// Hands over the whole answer. A client that has reset the stream does not want it.
fn send(respond: &mut SendResponse<Bytes>, answer: &Answer, method: &Method) {
    let is_bare = answer.body.is_empty() || method == Method::HEAD;
    if let Ok(mut stream) = respond.send_response(answer.head(), is_bare)
        && !is_bare
    {
        drop(stream.send_data(answer.body.clone(), true));
    }
}

/// Hands over the head and half the body, unless the client has reset the stream.
fn send_half(respond: &mut SendResponse<Bytes>, answer: &Answer) -> Option<SendStream<Bytes>> {
    let mut stream = respond.send_response(answer.head(), false).ok()?;
    stream.send_data(answer.half(), false).ok()?;
    Some(stream)
}
