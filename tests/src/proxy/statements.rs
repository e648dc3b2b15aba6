//! What a client of PostgreSQL runs, told from what it sends: it has a statement prepared under a name, and then calls it by
//! that name ([PostgreSQL, 55.7](https://www.postgresql.org/docs/current/protocol-message-formats.html)).
//!
//! A client of another protocol, or a message that is read in pieces, runs nothing as far as this can tell.

use std::collections::HashMap;

/// The statements that were prepared on one connection.
#[derive(Debug, Default)]
pub(super) struct Statements {
    named: HashMap<Vec<u8>, Vec<u8>>,
}

impl Statements {
    /// What a request runs, as text that ends with a zero; what it has prepared is noted.
    pub(super) fn run_by(&mut self, mut request: &[u8]) -> Vec<Vec<u8>> {
        let mut run = Vec::new();
        while let Some((kind, message, rest)) = first_message(request) {
            match kind {
                b'P' => {
                    let (name, text) = until_zero(message);
                    self.named.insert(name.to_owned(), until_zero(text).0.to_owned());
                }
                b'B' => {
                    let (_portal, called) = until_zero(message);
                    run.extend(self.named.get(until_zero(called).0).cloned());
                }
                b'Q' => run.push(message.to_owned()),
                _ => {}
            }
            request = rest;
        }
        run
    }
}

/// A message's kind and its content, and what follows it.
fn first_message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, after) = bytes.split_first()?;
    let length = u32::from_be_bytes(after.get(..4)?.try_into().ok()?);
    let (message, rest) = after.split_at_checked(usize::try_from(length).ok()?)?;
    Some((*kind, message.get(4..)?, rest))
}

/// A string with the zero that ends it, and what follows.
fn until_zero(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).map_or(bytes.len(), |zero| zero + 1);
    bytes.split_at(end)
}
