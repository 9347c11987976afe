//! What a traced packet tells: the rules that it gets, its connection, and what becomes of it.

use mmb_engine::{DropReason, PacketTrace, TracedConnection};
use std::fmt::{self, Write as _};
use std::io::Write as _;

/// A packet at a node that decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeTrace {
    /// VPP's number of the interface that it came in by.
    pub(super) interface: u32,
    /// Bytes.
    pub(super) len: u32,
    /// The worker that decided.
    pub(super) worker: u16,
    pub(super) fate: TracedVerdict,
    pub(super) account: PacketTrace,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum TracedVerdict {
    /// It goes on as it is.
    Next,
    /// It is to be rewritten.
    Rewrite,
    Drop(DropReason),
    /// Another worker decides.
    Hand(u16),
    /// It waits for its datagram's first fragment.
    Held,
    /// It was rewritten: bytes before.
    Rewritten(u32),
}

impl fmt::Display for NodeTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeTrace { interface, len, worker, fate, account } = self;
        if let TracedVerdict::Rewritten(before) = fate {
            return write!(f, "mmb: sw_if_index {interface}, {before} bytes rewritten to {len}");
        }
        write!(f, "mmb: sw_if_index {interface}, {len} bytes, worker {worker}: ")?;
        match fate {
            TracedVerdict::Next | TracedVerdict::Rewritten(_) => write!(f, "passes")?,
            TracedVerdict::Rewrite => write!(f, "is rewritten")?,
            TracedVerdict::Drop(reason) => write!(f, "dropped, {}", reason.name())?,
            TracedVerdict::Hand(worker) => write!(f, "handed to worker {worker}")?,
            TracedVerdict::Held => write!(f, "held until its first fragment comes")?,
        }
        match account.count {
            0 => write!(f, "\n  no rule")?,
            1 => write!(f, "\n  rule")?,
            _ => write!(f, "\n  rules")?,
        }
        let mut named = 0;
        for rule in account.rules() {
            write!(f, " {}", rule.0)?;
            named += 1;
        }
        if account.count > named {
            write!(f, " and {} more", account.count - named)?;
        }
        let Some(TracedConnection { id, is_reply, proto, arrived }) = account.connection else {
            return Ok(());
        };
        let metadata = if is_reply { "reply" } else { "original" };
        write!(
            f,
            "\n  connection {id} ({metadata}): protocol {proto}, {} port {} to {} port {}",
            arrived.src, arrived.sport, arrived.dst, arrived.dport
        )
    }
}

/// Writes what a trace tells; returns how many bytes, `room` at most.
///
/// # Safety
/// `trace` is one that a node of ours left, and `text` has that much room.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_trace(trace: *const NodeTrace, text: *mut u8, room: u32) -> u32 {
    // SAFETY: as the caller says.
    let (trace, text) =
        unsafe { (trace.read_unaligned(), std::slice::from_raw_parts_mut(text, room as usize)) };
    let mut told = String::new();
    // Writing to a string does not fail.
    let _ = write!(told, "{trace}");
    let mut rest = &mut *text;
    // What does not fit is left out.
    let _ = rest.write_all(told.as_bytes());
    let left = rest.len();
    room - left as u32
}
