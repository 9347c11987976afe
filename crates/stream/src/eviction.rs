//! Selection of a stream to evict for others.
//!
//! Each call examines a few streams, starting after the last examined stream. The caller ends the
//! connection of the selected stream.

use crate::edit::side::EditStream;
use crate::id::StreamId;
use crate::side::StreamProto;
use crate::table::{Stream, StreamTable};

/// Number of streams that one call examines.
const EXAMINED: u32 = 64;
/// A stream with buffered bytes is evicted only after it was idle for this time.
const IDLE_S: u32 = 10;
/// A stream whose SYN has no answer is evicted only after it has waited for this time.
const HALF_OPEN_S: u32 = 1;

impl StreamTable {
    /// Selects a stream to evict for memory: among some streams with buffered bytes, the stream that was
    /// idle for longest. The caller resets its connection.
    pub fn longest_idle(&mut self, now_ms: u64) -> Option<StreamId> {
        self.victim((now_ms, IDLE_S), |table, stream| {
            let edit = stream.edit.map(|edit| &table.edit.streams[edit]);
            stream.sides.iter().any(|side| side.buffered() > 0 || side.out_of_order.is_some())
                || edit.is_some_and(EditStream::has_buffered)
        })
    }

    /// Selects a stream to evict among some streams whose initiator's SYN has no answer yet, and whose owner
    /// satisfies `filter`: the stream that has waited for longest. The caller ends its connection to make
    /// room for others.
    pub fn half_open(&mut self, now_ms: u64, filter: impl Fn(u32) -> bool) -> Option<StreamId> {
        // The record of a stream that has ended has no owner.
        self.victim((now_ms, HALF_OPEN_S), |_, stream| {
            let Stream { sides: [initiator, responder], owner, .. } = stream;
            let is_tcp = stream.proto() == StreamProto::Tcp;
            is_tcp && *owner != 0 && initiator.has_begun && !responder.has_begun && filter(*owner)
        })
    }

    /// Among the next streams that satisfy `filter`, the stream that was idle for longest, and for at least
    /// `min_idle_s` seconds.
    fn victim(
        &mut self,
        (now_ms, min_idle_s): (u64, u32),
        filter: impl Fn(&StreamTable, &Stream) -> bool,
    ) -> Option<StreamId> {
        let now_s = (now_ms / 1000) as u32;
        let highest = self.streams.highest();
        let mut found: Option<(u32, StreamId)> = None;
        for _ in 0..EXAMINED.min(highest) {
            self.scan_position = if self.scan_position >= highest { 1 } else { self.scan_position + 1 };
            let Some(id) = <StreamId as mmb_base::Id>::new(self.scan_position) else { continue };
            let stream = &self.streams[id];
            let idle_s = now_s.saturating_sub(stream.last_s);
            let is_longest = found.is_none_or(|(longest, _)| idle_s > longest);
            if idle_s >= min_idle_s && is_longest && filter(self, stream) {
                found = Some((idle_s, id));
            }
        }
        found.map(|(_, id)| id)
    }
}
