//! Packets in memory, each in a buffer of its own, as after reception by a network card. If there are enough packets, each is out of the
//! cache when it is processed.

use arrayvec::ArrayVec;
use mmb_base::Block;
use mmb_engine::VECTOR;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::RepeatableRandom;

/// The headroom in bytes in front of each packet, which fits all TCP options.
const HEADROOM: usize = 64;
/// The alignment of buffers: a cache line.
const LINE: usize = 64;

/// Many packets in one allocation, and their original bytes.
#[derive(Default)]
pub(super) struct Arena {
    memory: Block<u8>,
    pristine: Vec<u8>,
    places: Vec<PacketPlace>,
}

/// The location of a packet.
#[derive(Clone, Copy)]
struct PacketPlace {
    /// The size of its buffer in bytes, with headroom; buffers are contiguous.
    size: usize,
    len: usize,
    link: LinkType,
    /// The ingress port.
    port: PortId,
}

impl Arena {
    /// Adds a packet of the first port.
    pub(super) fn push(&mut self, bytes: &[u8], link: LinkType) {
        self.push_from(PortId(0), bytes, link);
    }

    /// Adds a packet of a port.
    pub(super) fn push_from(&mut self, port: PortId, bytes: &[u8], link: LinkType) {
        let size = (HEADROOM + bytes.len()).next_multiple_of(LINE);
        self.pristine.resize(self.pristine.len() + HEADROOM, 0);
        self.pristine.extend_from_slice(bytes);
        self.pristine.resize(self.pristine.len() + size - HEADROOM - bytes.len(), 0);
        self.places.push(PacketPlace { size, len: bytes.len(), link, port });
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Restores the original bytes of all packets.
    pub(super) fn restore(&mut self) {
        let wanted = self.pristine.len() + LINE;
        if self.memory.len() != wanted {
            // In huge pages, as packet buffers of DPDK and VPP.
            self.memory = Block::try_new(wanted).expect("memory for the packets");
            (0..wanted).for_each(|_| self.memory.push(0));
        }
        lines(&mut self.memory)[..self.pristine.len()].copy_from_slice(&self.pristine);
    }

    /// Passes all packets to `work` in vectors.
    pub(super) fn vectors(&mut self, mut work: impl FnMut(&mut [Packet<'_>])) {
        let mut packets = self.packets();
        loop {
            let mut vector: ArrayVec<Packet<'_>, VECTOR> = packets.by_ref().take(VECTOR).collect();
            if vector.is_empty() {
                return;
            }
            work(&mut vector);
        }
    }

    /// Distributes all packets, with their original bytes; `of` returns the receiver of each, by index.
    pub(super) fn deal(&self, count: usize, of: impl Fn(usize) -> usize) -> Vec<Arena> {
        let mut dealt: Vec<Arena> = (0..count).map(|_| Arena::default()).collect();
        let mut start = HEADROOM;
        for (number, place) in self.places.iter().enumerate() {
            dealt[of(number)].push(&self.pristine[start..start + place.len], place.link);
            start += place.size;
        }
        dealt
    }

    /// Makes the current bytes of every second packet its original bytes, with `port` as ingress port.
    pub(super) fn keep_every_second(&mut self, port: PortId) {
        let current = lines(&mut self.memory);
        let mut start = 0;
        for (number, place) in self.places.iter_mut().enumerate() {
            let end = start + place.size;
            if number % 2 == 1 {
                self.pristine[start..end].copy_from_slice(&current[start..end]);
                place.port = port;
            }
            start = end;
        }
    }

    /// Brings the packets, with their original bytes, into a random order. Their buffers follow one another in the new order too: only the
    /// order of the connections changes, not that of the buffers.
    pub(super) fn shuffle(&mut self, random: &mut RepeatableRandom) {
        let mut start = 0;
        let mut places: Vec<(usize, PacketPlace)> = Vec::with_capacity(self.places.len());
        for place in self.places.drain(..) {
            places.push((start, place));
            start += place.size;
        }
        random.shuffle(&mut places);
        let mut pristine = Vec::with_capacity(self.pristine.len());
        for (start, place) in places {
            pristine.extend_from_slice(&self.pristine[start..start + place.size]);
            self.places.push(place);
        }
        self.pristine = pristine;
    }

    /// Returns all packets in their order.
    pub(super) fn packets(&mut self) -> impl Iterator<Item = Packet<'_>> {
        let mut rest = lines(&mut self.memory);
        self.places.iter().filter_map(move |place| {
            let (buffer, remaining) = std::mem::take(&mut rest).split_at_mut_checked(place.size)?;
            rest = remaining;
            Packet::new(buffer, HEADROOM, place.len, place.port, place.link)
        })
    }
}

/// Returns the memory from the first cache line that begins in it.
fn lines(memory: &mut [u8]) -> &mut [u8] {
    let before = memory.as_ptr().align_offset(LINE);
    memory.get_mut(before..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_as_they_were() {
        let mut arena = Arena::default();
        let packets: Vec<Vec<u8>> = (0..100usize).map(|n| vec![n as u8; n * 7]).collect();
        packets.iter().for_each(|packet| arena.push(packet, LinkType::RawIp));
        arena.restore();
        for mut packet in arena.packets() {
            assert!(packet.grow_front(HEADROOM));
            packet.bytes_mut().fill(0xff);
        }
        arena.restore();
        let again: Vec<Vec<u8>> = arena.packets().map(|packet| packet.bytes().to_vec()).collect();
        assert_eq!(again, packets);
        assert_eq!(arena.len(), 100);
        let mut shuffled = Arena::default();
        packets.iter().for_each(|packet| shuffled.push(packet, LinkType::RawIp));
        shuffled.shuffle(&mut RepeatableRandom::for_purpose(1, "order"));
        shuffled.restore();
        let mut again: Vec<Vec<u8>> = shuffled.packets().map(|packet| packet.bytes().to_vec()).collect();
        assert_ne!(again, packets);
        again.sort_by_key(Vec::len);
        assert_eq!(again, packets, "every packet once");
        for (number, mut own) in arena.deal(3, |number| number % 3).into_iter().enumerate() {
            own.restore();
            let wanted: Vec<_> = packets.iter().skip(number).step_by(3).map(Vec::as_slice).collect();
            let dealt: Vec<_> = own.packets().map(|packet| packet.bytes().to_vec()).collect();
            assert_eq!(dealt, wanted);
        }
    }
}
