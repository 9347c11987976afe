//! A packet's TCP options, parsed when a check first needs them.

use crate::check::CheckedPacket;
use mmb_packet::options::{self, OptionTable};

/// The option table of the packet that was parsed last. It belongs to a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct LazyOptions {
    table: OptionTable,
    /// The key whose packet the table is of.
    key: Option<u8>,
}

impl LazyOptions {
    /// Forgets the packet: the next key of the same number is another packet's. To be called when the keys change.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.key = None;
    }

    /// The options of the subject's packet.
    #[inline]
    pub(crate) fn parsed(&mut self, subject: &CheckedPacket<'_, '_>) -> &OptionTable {
        if self.key != Some(subject.key) {
            self.table.fill(options::area(subject.packet, subject.layout));
            self.key = Some(subject.key);
        }
        &self.table
    }
}
