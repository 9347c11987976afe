//! Edits of streams in the summary of a replay: which rule changed which bytes.

use mmb_engine::{EditTotals, EditedBytes, Endpoints, TracedEdit};
use mmb_policy::FieldId;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// The most edits that are told one by one.
pub(super) const MAX_REPORTED: usize = 1000;

/// One edit; the JSON form has the same names.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReplayEdit {
    /// Empty for what only frames messages of HTTP, or keeps them readable.
    rules: Vec<u32>,
    proto: String,
    arrived: ReplayEnds,
    direction: &'static str,
    /// Bytes that the sender sent before the ones that are removed.
    offset: u64,
    /// The first 128 bytes, escaped as in Rust's and C's strings: `\r`, `\x00`.
    removed: String,
    removed_bytes: u64,
    put: String,
    put_bytes: u64,
    /// The number of the packet that decided it, in the capture of that input; of none if time did.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<u64>,
    /// The name of that capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
}

/// The tuple of the initiator's packets.
#[derive(Clone, Debug, Serialize)]
struct ReplayEnds {
    src: IpAddr,
    sport: u16,
    dst: IpAddr,
    dport: u16,
}

impl ReplayEdit {
    /// Describes an edit that was decided at a packet: its number, and its capture.
    pub(super) fn new(edit: &TracedEdit, packet: Option<(u64, &str)>) -> ReplayEdit {
        let TracedEdit { rules, proto, arrived, is_reply, offset, removed, put, packet: _ } = edit;
        let Endpoints { src, sport, dst, dport } = *arrived;
        let name = FieldId::IpProto.info().names.name((*proto).into());
        let escaped = |bytes: &EditedBytes| bytes.shown.escape_ascii().to_string();
        ReplayEdit {
            rules: rules.iter().map(|rule| rule.0).collect(),
            proto: name.map_or_else(|| proto.to_string(), str::to_owned),
            arrived: ReplayEnds { src, sport, dst, dport },
            direction: if *is_reply { "reply" } else { "forward" },
            offset: *offset,
            removed: escaped(removed),
            removed_bytes: removed.len,
            put: escaped(put),
            put_bytes: put.len,
            packet: packet.map(|(number, _)| number),
            input: packet.map(|(_, input)| input.to_owned()),
        }
    }
}

/// All edits of a replay.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct EditSum {
    edits: u64,
    /// Those that are not told one by one.
    untold: u64,
    removed_bytes: u64,
    put_bytes: u64,
}

impl EditSum {
    /// `None` if there are no edits.
    pub(super) fn new(totals: EditTotals, told: usize) -> Option<EditSum> {
        let EditTotals { edits, removed, put } = totals;
        let untold = edits.saturating_sub(told as u64);
        (edits > 0).then_some(EditSum { edits, untold, removed_bytes: removed, put_bytes: put })
    }
}

impl fmt::Display for EditSum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EditSum { edits, removed_bytes, put_bytes, .. } = self;
        write!(
            formatter,
            "edits   {edits:>12} of streams, {removed_bytes} bytes became {put_bytes} (--json tells each)"
        )
    }
}
