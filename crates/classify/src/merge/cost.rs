//! About what groups of tuples cost a packet.
//!
//! The figures are rough cycles; what counts is that a table costs all packets, and a chain only those that get there.

use super::{Merger, TupleGroup};
use crate::flat;
use crate::lane_fields::is_diverse;
use crate::lane_mask::LaneMask;
use crate::relax::SHORT_CHAIN;
use mmb_packet::Class;

/// The costs of a table, of a row, of an entry of a chain, and of a list in place of a long chain.
const TABLE: f64 = 11.0;
const ROW: f64 = 0.8;
const ENTRY: f64 = 5.0;
const LONG: f64 = 40.0;
/// Entries of a class whose lists the cache holds, and how many times as long as these others take.
const NEAR: usize = 65_536;
const FAR: f64 = 8.0;
/// The cost of a bucket that is compared.
const VISIT: f64 = 60.0;
/// Tables in which a packet that some rule is about finds a chain.
const MET: f64 = 2.0;

impl Merger<'_> {
    /// The cost of every table, and of the chains that a packet meets which some rule is about.
    pub(super) fn cost(&mut self, groups: &[TupleGroup]) -> f64 {
        let (mut tables, mut rows, mut chains, mut keys) = (0.0, 0, 0.0, 0);
        let all: usize = self.tuples.iter().map(|tuple| tuple.entries).sum();
        let long = if all > NEAR { LONG * FAR } else { LONG };
        for group in groups {
            let entries = group.entries(self.tuples);
            if flat::has_room(rows, entries) {
                rows += entries;
                tables += ROW * entries as f64;
                continue;
            }
            self.count(group);
            for key in group.sample(self.tuples) {
                let others = f64::from(self.tally.count(key, &group.relaxed) - 1) / self.share;
                chains += if others < SHORT_CHAIN as f64 { ENTRY * others } else { long };
                keys += 1;
            }
            // A dense table's filter lets many packets pass that no rule is about.
            let density =
                self.tally.distinct() as f64 / self.share / space(self.class, &group.relaxed).exp2();
            tables += TABLE + VISIT * (1.0 - (-density).exp());
        }
        tables + chains / keys.max(1) as f64 * MET
    }

    /// Counts the relaxed keys of a group.
    fn count(&mut self, group: &TupleGroup) {
        self.tally.clear();
        for key in group.sample(self.tuples) {
            self.tally.add(key, &group.relaxed);
        }
    }
}

/// Bits of a mask in which packets differ: where they are diverse all, of other lanes about one.
fn space(class: Class, mask: &LaneMask) -> f64 {
    let bits = |(lane, mask): (usize, &u32)| match is_diverse(class, lane) {
        true => mask.count_ones(),
        false => u32::from(*mask != 0),
    };
    mask.iter().enumerate().map(bits).sum::<u32>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_differ_in_addresses_and_ports() {
        let mask = |lanes: &[usize]| {
            let mut mask = LaneMask::default();
            lanes.iter().for_each(|&lane| mask[lane] = 0xff_ffff);
            mask
        };
        assert_eq!(space(Class::Ip4, &mask(&[4, 13])), 48.0);
        assert_eq!(space(Class::Ip6, &mask(&[4, 12])), 48.0);
        // TTL, protocol and checksum were once taken for part of an address.
        assert_eq!(space(Class::Ip4, &mask(&[0, 12])), 2.0);
        assert_eq!(space(Class::Other, &mask(&[2, 13])), 2.0);
    }
}
