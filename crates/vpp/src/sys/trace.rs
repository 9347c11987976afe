//! Traces of packets at our nodes: matched rules, connection, verdict.

use mmb_engine::{DropReason, PacketTrace, TracedConnection};
use std::fmt::{self, Write as _};
use std::io::Write as _;

/// A trace as VPP stores it beside a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTrace {
    /// VPP's number of the receiving interface.
    pub(crate) interface: u32,
    /// The packet's bytes.
    pub(crate) len: u32,
    /// The worker that decided.
    pub(crate) worker: u16,
    pub(crate) verdict: TracedVerdict,
    pub(crate) trace: PacketTrace,
}

/// The verdict on a traced packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TracedVerdict {
    /// It goes on unchanged.
    Next,
    /// It goes to the node that rewrites.
    Rewrite,
    Drop(DropReason),
    /// Another worker decides.
    Hand(u16),
    /// The worker holds it until its datagram's first fragment comes.
    Held,
    /// Its bytes live on in the stream of its connection.
    Absorbed,
    /// It was rewritten; its bytes before.
    Rewritten(u32),
}

impl fmt::Display for NodeTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeTrace { interface, len, worker, verdict, trace } = self;
        if let TracedVerdict::Rewritten(before) = verdict {
            return write!(f, "mmb: sw_if_index {interface}, {before} bytes rewritten to {len}");
        }
        write!(f, "mmb: sw_if_index {interface}, {len} bytes, worker {worker}: ")?;
        match verdict {
            TracedVerdict::Next | TracedVerdict::Rewritten(_) => write!(f, "passes")?,
            TracedVerdict::Rewrite => write!(f, "is rewritten")?,
            TracedVerdict::Drop(reason) => write!(f, "dropped, {}", reason.name())?,
            TracedVerdict::Hand(worker) => write!(f, "handed to worker {worker}")?,
            TracedVerdict::Absorbed => write!(f, "absorbed into its stream")?,
            TracedVerdict::Held => write!(f, "held until its first fragment comes")?,
        }
        match trace.count {
            0 => write!(f, "\n  no rule")?,
            1 => write!(f, "\n  rule")?,
            _ => write!(f, "\n  rules")?,
        }
        let mut named = 0;
        for rule in trace.rules() {
            write!(f, " {}", rule.0)?;
            named += 1;
        }
        if trace.count > named {
            write!(f, " and {} more", trace.count - named)?;
        }
        let Some(TracedConnection { id, is_reply, proto, arrived, .. }) = trace.connection else {
            return Ok(());
        };
        let direction = if is_reply { "reply" } else { "original" };
        write!(
            f,
            "\n  connection {id} ({direction}): protocol {proto}, {} port {} to {} port {}",
            arrived.src, arrived.sport, arrived.dst, arrived.dport
        )
    }
}

/// Writes a trace as text; returns the number of bytes, at most `room`.
///
/// # Safety
/// `trace` points to a trace that [`NodeCall::add_trace`](super::NodeCall::add_trace) wrote, `text` to `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmb_rs_trace(trace: *const NodeTrace, text: *mut u8, room: u32) -> u32 {
    // SAFETY: as the caller says.
    let (trace, text) =
        unsafe { (trace.read_unaligned(), std::slice::from_raw_parts_mut(text, room as usize)) };
    let mut whole = String::new();
    // Writing to a string does not fail.
    let _ = write!(whole, "{trace}");
    let mut rest = &mut *text;
    // What does not fit is left out.
    let _ = rest.write_all(whole.as_bytes());
    let left = rest.len();
    room - left as u32
}
