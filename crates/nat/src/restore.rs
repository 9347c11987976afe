//! Restores the bindings of another daemon's connections: unchanged, or not at all.

use crate::addresses::ValueSet;
use crate::bindings::{BindingId, InsideEnd, OutsideAddress};
use crate::mapping::{Mapping, NatError, class};
use crate::paired_address::column;
use crate::pools::SourceTarget;
use crate::ports::PortMapping;
use crate::translate::{Nat, Translated};
use mmb_conn::{DESTINATION, SOURCE, Tuple};

impl Nat {
    /// Restores the translation that a mapping gave to a connection. `arrived` is the tuple of the
    /// connection's first packet as it arrived, `sent` as it left. The connection is not counted for its
    /// server: the method `least` starts from zero.
    ///
    /// # Errors
    /// The outside endpoint now belongs to another inside endpoint, the mapping does not contain it, or
    /// memory is exhausted.
    pub fn restore(
        &mut self,
        mapping: &Mapping,
        arrived: &Tuple,
        sent: Tuple,
    ) -> Result<Translated, NatError> {
        let retaining = retaining_mapping(mapping, arrived, &sent);
        let mapping = retaining.as_ref().unwrap_or(mapping);
        // A protocol whose ports NAT may not choose has no binding to restore.
        let inside = if sent.may_map_ports() { self.inside(mapping, arrived)? } else { None };
        let binding = match inside {
            Some(inside) => {
                let binding = self.rebind(&inside, mapping, &sent);
                self.pools.targets.release(inside.target);
                Some(binding?)
            }
            None => None,
        };
        let mut translated = self.lease(sent, binding, None)?;
        let Tuple { addresses, wire, proto, family, .. } = *arrived;
        let outside = OutsideAddress { address: addresses[DESTINATION], wire, proto, family };
        let was_redirected = |inside: &InsideEnd| {
            (inside.address, inside.port) == (sent.addresses[DESTINATION], sent.port(DESTINATION))
        };
        if let Some(number) = self.bindings.find_outside(&outside, arrived.port(DESTINATION))
            && was_redirected(&self.bindings.get(number).inside)
        {
            if !self.leases.reserve() {
                self.release(translated.lease);
                return Err(NatError::NoMemory);
            }
            self.bindings.hold(number);
            let mut lease = self.leases.take(translated.lease);
            lease.bindings[DESTINATION] = Some(number);
            translated.lease = self.leases.store(lease);
        }
        Ok(translated)
    }

    /// Prefetches what [`Nat::restore`] reads for the next connections. `next` has their mappings, and the
    /// tuples of their first packets as they arrived and as they left.
    pub fn prefetch_restored<'m>(&self, next: impl Iterator<Item = (&'m Mapping, Tuple, Tuple)>) {
        let mut count = 0;
        for (mapping, arrived, sent) in next {
            let ranges = mapping.sport.as_ref().map(PortMapping::ranges);
            let is = |target: &SourceTarget| target.matches(mapping.saddr.as_ref(), ranges);
            let Some(target) = self.pools.targets.last(is).filter(|_| sent.may_map_ports()) else { continue };
            let inside = InsideEnd::new(&arrived, target);
            self.bindings.prefetch_inside(&inside);
            self.pools.prefetch_inside(&inside);
            let InsideEnd { wire, proto, family, .. } = inside;
            let outside = OutsideAddress { address: sent.addresses[SOURCE], wire, proto, family };
            self.bindings.prefetch_outside(&outside, sent.ports[SOURCE]);
            self.pools.prefetch_port(&outside, sent.ports[SOURCE]);
            count += 1;
        }
        self.bindings.prefetch_slots(count).for_each(|id| self.peers.prefetch(id));
        self.pools.prefetch_slots(count);
    }

    fn rebind(&mut self, inside: &InsideEnd, mapping: &Mapping, sent: &Tuple) -> Result<BindingId, NatError> {
        let (address, port) = (sent.addresses[SOURCE], sent.ports[SOURCE]);
        let InsideEnd { wire, proto, family, .. } = *inside;
        // The inside endpoint may have several bindings.
        if let Some(number) =
            self.bindings.find_outside(&OutsideAddress { address, wire, proto, family }, port)
            && self.bindings.get(number).inside == *inside
        {
            self.bindings.hold(number);
            return Ok(number);
        }
        let column = column(inside.proto, class(mapping, inside));
        let end = (address, port);
        let end = self.pools.retake(inside, mapping.saddr.as_ref(), end, column, &mut self.secrets)?;
        let is_shared = self.bindings.find_inside(inside).is_none();
        self.bind(*inside, end, is_shared)
    }
}

/// A mapping that keeps a connection's outside endpoint from others, if the source is translated but the
/// rules of the connection translate no source any more.
fn retaining_mapping(mapping: &Mapping, arrived: &Tuple, sent: &Tuple) -> Option<Mapping> {
    let source = |tuple: &Tuple| (tuple.addresses[SOURCE], tuple.ports[SOURCE]);
    let translates = mapping.saddr.is_some() || mapping.sport.is_some();
    if translates || source(arrived) == source(sent) {
        return None;
    }
    let address = sent.addresses[SOURCE];
    Some(Mapping { saddr: Some(ValueSet::new(vec![(address, address)])), ..Mapping::default() })
}

#[cfg(test)]
mod tests {
    use super::super::{PortMapping, RuleVersion};
    use super::*;
    use mmb_conn::Wire;
    use mmb_conn::proto;
    use mmb_random::SeedTree;

    fn tuple(host: u32, port: u16) -> Tuple {
        let addresses = [u128::from(0x0a00_0000 + host), 0xc000_0250];
        Tuple { addresses, ports: [port, 53], proto: proto::UDP, family: 4, ..Tuple::default() }
    }

    #[test]
    fn bindings_come_back_as_they_were() {
        let pool = ValueSet::new(vec![(0xc800_0001, 0xc800_0003)]);
        let ports = Some(PortMapping::within(&[(1000, 1009)]));
        let mapping = Mapping { saddr: Some(pool), sport: ports, ..Mapping::default() };
        let mut before = Nat::new(&SeedTree::repeatable(1));
        let arrived: Vec<Tuple> =
            (0..4).flat_map(|host| [5000, 5001].map(|port| tuple(host, port))).collect();
        let sent: Vec<Tuple> = arrived
            .iter()
            .map(|arrived| {
                before.translate(RuleVersion(1), &mapping, arrived, &|_| false).expect("there is room").sent
            })
            .collect();

        let mut after = Nat::new(&SeedTree::repeatable(2));
        let mut held = Vec::new();
        for (arrived, sent) in arrived.iter().zip(&sent) {
            let restored = after.restore(&mapping, arrived, *sent).expect("nobody else has it");
            assert_eq!(restored.sent, *sent);
            held.push(restored.lease);
        }
        // The inside endpoint has its previous outside endpoint, for other destinations too; and no other
        // endpoint gets it.
        let mut other = arrived[3];
        other.ports[1] = 99;
        let again = after.translate(RuleVersion(1), &mapping, &other, &|_| false).expect("it has one");
        assert_eq!((again.sent.addresses[0], again.sent.ports[0]), (sent[3].addresses[0], sent[3].ports[0]));
        assert!(after.restore(&mapping, &tuple(9, 1), sent[0]).is_err());
        // One connection of an inside endpoint may have another outside endpoint than the others.
        let address = sent[0].addresses[SOURCE];
        let is_free = |port: &u16| after.owner(proto::UDP, 4, arrived[0].wire, address, *port).is_none();
        let port = (1000..=1009).find(is_free).expect("ten ports, of which eight are in use at most");
        let elsewhere = Tuple { ports: [port, 53], ..sent[0] };
        let apart = after.restore(&mapping, &arrived[0], elsewhere).expect("nobody else has it");
        assert_eq!(apart.sent, elsewhere);
        let [arrived_too, sent_too] =
            [arrived[0], elsewhere].map(|tuple| Tuple { ports: [tuple.ports[0], 99], ..tuple });
        let apart_too = after.restore(&mapping, &arrived_too, sent_too).expect("it is the same inside end's");
        assert!(after.restore(&mapping, &tuple(9, 1), elsewhere).is_err());
        let outside = Tuple { addresses: [7, 8], ..sent[0] };
        assert!(after.restore(&mapping, &tuple(9, 1), outside).is_err(), "no address of the pool");
        held.into_iter()
            .chain([again.lease, apart.lease, apart_too.lease])
            .for_each(|lease| after.release(lease));
        assert!(after.is_empty());
        assert_eq!(after.pools.in_use(), (0, 0, 0));
    }

    #[test]
    fn an_outside_end_is_held_though_its_rule_is_gone() {
        let mut nat = Nat::new(&SeedTree::repeatable(1));
        let (arrived, mut sent) = (tuple(1, 5000), tuple(1, 5000));
        (sent.addresses[SOURCE], sent.ports[SOURCE]) = (0xc800_0001, 1001);
        let held = nat.restore(&Mapping::default(), &arrived, sent).expect("nobody has it");
        assert_eq!(
            nat.owner(proto::UDP, 4, Wire::default(), 0xc800_0001, 1001),
            Some((arrived.addresses[SOURCE], 5000))
        );
        nat.release(held.lease);
        assert!(nat.is_empty());
        let plain = nat.restore(&Mapping::default(), &arrived, arrived).expect("there is nothing to hold");
        assert_eq!(plain.lease, None);
    }
}
