//! The data of a body, frame by frame, becomes one piece that takes no more room than its bytes.

use bytes::{Bytes, BytesMut};

/// The frames so far. A single one is passed on as it is; several are copied together.
#[derive(Default)]
pub(crate) struct Joined {
    first: Bytes,
    copied: BytesMut,
}

impl Joined {
    pub(crate) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.first.is_empty() && self.copied.is_empty() {
            self.first = data;
            return;
        }
        self.copied.extend_from_slice(&std::mem::take(&mut self.first));
        self.copied.extend_from_slice(&data);
    }

    pub(crate) fn finish(self) -> Bytes {
        if self.copied.is_empty() { self.first } else { self.copied.freeze() }
    }
}
