//! The links between the records of an expiry queue.

use crate::ConnId;
use mmb_base::Id;

/// A record's neighbours in its queue.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct QueueLinks {
    pub(crate) previous: Previous,
    pub(crate) next: Option<ConnId>,
}

/// The previous record or, for the first record of a queue, [`HEAD`] and the queue's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Previous(u32);

/// See [`Previous`].
const HEAD: u32 = 1 << 31;

impl Previous {
    /// The value for the first record of a queue.
    pub(crate) fn head(queue: usize) -> Previous {
        Previous(HEAD | queue as u32)
    }

    /// The value for a record that follows another one.
    pub(crate) fn record(id: ConnId) -> Previous {
        Previous(id.number())
    }

    /// The previous record; `None` for the first record of a queue.
    #[inline]
    pub(crate) fn id(self) -> Option<ConnId> {
        ConnId::new(self.0).filter(|_| self.0 & HEAD == 0)
    }

    /// The number of the queue, for its first record.
    #[inline]
    pub(crate) fn queue(self) -> usize {
        (self.0 & !HEAD) as usize
    }
}

/// The most records that links can address.
pub(crate) const MAX_RECORDS: usize = HEAD as usize - 2;
