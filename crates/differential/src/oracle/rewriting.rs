//! Rewriting: the targets of all matched rules, pass by pass, on a copy of the packet.

use super::checksum::{Sums, write_u16};
use super::dissect::{Dissection, Fragment, TransportKind};
use super::fields::{OraclePlace, Pass};
use super::{fields, options};
use mmb_policy::rule::Write;
use mmb_policy::{Field, Rule, Target};
use mmb_rewrite::NotApplied;

/// A rewritten packet.
pub(super) struct Rewritten {
    pub(super) bytes: Vec<u8>,
    /// Its headers after rewriting.
    pub(super) packet: Dissection,
    pub(super) not_applied: Vec<NotApplied>,
}

fn pass(field: Field) -> Pass {
    match fields::place(field) {
        OraclePlace::Bits { pass, .. } => pass,
        OraclePlace::Option(_) => Pass::Option,
        OraclePlace::Payload(_) => Pass::Payload,
        // No target writes them.
        OraclePlace::InPort
        | OraclePlace::OutPort
        | OraclePlace::Connection
        | OraclePlace::EtherType
        | OraclePlace::IpVersion
        | OraclePlace::Codepoint(_)
        | OraclePlace::Extension(_) => Pass::Field,
    }
}

/// Applies the targets of `rules`, which are sorted by (prio, id). `headroom` is the number of bytes by which the packet may grow.
pub(super) fn rewrite(bytes: &[u8], packet: &Dissection, headroom: usize, rules: &[&Rule]) -> Rewritten {
    let mut work = Rewritten { bytes: bytes.to_vec(), packet: packet.clone(), not_applied: Vec::new() };
    let sums = Sums::of(bytes, packet);
    work.write_numbers(rules, Pass::Field);
    work.edit_options(rules, headroom);
    work.write_payloads(rules);
    work.write_numbers(rules, Pass::Length);
    Sums::of(&work.bytes, &work.packet).follow(sums, &mut work.bytes, &work.packet);
    work.write_numbers(rules, Pass::Checksum);
    work
}

/// The `mod` targets of one pass, in order.
fn writes<'r>(rules: &'r [&Rule], wanted: Pass) -> impl Iterator<Item = (Field, &'r Write)> {
    rules.iter().flat_map(|rule| &rule.targets).filter_map(move |target| match target {
        Target::Mod(field, write) => (pass(*field) == wanted).then_some((*field, write)),
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => None,
        Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Log(_) | Target::Limit(_) => None,
        Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) | Target::Helper(_) => None,
        // The oracle knows no connections.
        Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => None,
    })
}

impl Rewritten {
    /// A field that the packet does not have is skipped.
    fn write_numbers(&mut self, rules: &[&Rule], pass: Pass) {
        for (field, write) in writes(rules, pass) {
            let OraclePlace::Bits { start, first, width, .. } = fields::place(field) else { continue };
            let bits = fields::bits(start, first, width, &self.packet);
            if let (Some(bits), Write::Number(number)) = (bits, write) {
                bits.write(&mut self.bytes, *number);
            }
        }
    }

    /// Bytes of an IP payload may be written to a transport header. A write to its checksum is lost: the new checksum is computed from the
    /// old one.
    fn write_payloads(&mut self, rules: &[&Rule]) {
        for (field, write) in writes(rules, Pass::Payload) {
            let OraclePlace::Payload(behind) = fields::place(field) else { continue };
            if let (Some(range), Write::Bytes(new)) = (fields::payload(behind, &self.packet), write) {
                if new.len() <= range.len() {
                    self.bytes[range.start..range.start + new.len()].copy_from_slice(new);
                } else {
                    self.not_applied.push(NotApplied::PayloadShort);
                }
            }
        }
    }

    /// Replaces the options area, and updates the data offset and the IP length.
    fn edit_options(&mut self, rules: &[&Rule], headroom: usize) {
        let Some(area) = self.packet.tcp_options() else { return };
        let Some(ip) = self.packet.ip.as_mut() else { return };
        let Some(transport) = ip.transport.as_mut() else { return };
        let (new, not_applied) =
            options::edit(&self.bytes[area.clone()], ip.fragment != Fragment::Whole, rules);
        self.not_applied.extend(not_applied);

        let grown = |offset: usize| offset + new.len() - area.len();
        let length = match ip.version {
            4 => grown(ip.end) - self.packet.l3,
            _ => grown(ip.end) - self.packet.l3 - 40,
        };
        if new.len() > area.len() + headroom || length > 0xffff {
            self.not_applied.push(NotApplied::NoRoom);
            return;
        }
        debug_assert_eq!(transport.kind, TransportKind::Tcp);
        transport.len = grown(transport.len);
        transport.payload_end = grown(transport.payload_end);
        ip.end = grown(ip.end);
        let length_at = self.packet.l3 + if ip.version == 4 { 2 } else { 4 };
        write_u16(&mut self.bytes, length_at, length as u16);
        let offset = (transport.len / 4) as u8;
        let offset_at = ip.upper + 12;
        self.bytes[offset_at] = self.bytes[offset_at] & 0x0f | offset << 4;
        self.bytes.splice(area, new);
    }
}
