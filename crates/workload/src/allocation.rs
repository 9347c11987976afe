//! Addresses with realistic allocation: a few large blocks with networks, which contain subnets and hosts; at each level, a few
//! are much more frequent than the others.
//!
//! It follows the results of Kohler, Li, Paxson and Shenker (*Observed structure of addresses in IP traffic*, IMW 2002):
//! addresses in use cluster at every prefix length, and some prefixes are much more frequent than others.

use mmb_random::RepeatableRandom;

/// Large blocks of an allocation.
const BLOCKS: usize = 24;

/// A tree of allocated addresses. It is not stored: the children of a node follow from the node's number.
#[derive(Clone, Debug)]
pub struct Allocation {
    salt: u64,
    /// Network and prefix length, /8 to /12, the most frequent first.
    blocks: Vec<(u32, u8)>,
}

impl Allocation {
    /// The tree of a seed.
    pub(crate) fn new(random: &mut RepeatableRandom) -> Allocation {
        let block = |random: &mut RepeatableRandom| {
            let len = 8 + random.below(5) as u8;
            let address = random.within(0x0100_0000, 0xdfff_ffff) as u32;
            (address & (u32::MAX << (32 - len)), len)
        };
        Allocation { salt: random.word(), blocks: (0..BLOCKS).map(|_| block(random)).collect() }
    }

    /// An address in use.
    pub(crate) fn address(&self, random: &mut RepeatableRandom) -> u32 {
        let (block, len) = self.blocks[random.zipf(BLOCKS as u64) as usize];
        let network = self.child(block, len, 16, random);
        let subnet = self.child(network, 16, 24, random);
        self.child(subnet, 24, 32, random)
    }

    /// A node of `len` bits below a node of `parent_len` bits; popular nodes are more likely.
    fn child(&self, parent: u32, parent_len: u8, len: u8, random: &mut RepeatableRandom) -> u32 {
        let count = 1_u64 << (len - parent_len);
        let rank = random.zipf(count);
        // The child with a given rank differs between nodes, but is always the same for one node.
        let mut order =
            RepeatableRandom::for_purpose(self.salt ^ u64::from(parent) << 8 ^ rank << 40, "child");
        parent | (order.below(count) as u32) << (32 - len)
    }
}
