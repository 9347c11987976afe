//! From a field's number to the interval that it lies in, without a branch that depends on it.

/// Numbers that are compared at once.
const NODE: usize = 16;
/// The most nodes that are compared.
const MAX_NODES: usize = 4;
/// Numbers that a word of a bitmap is about.
const WORD: u32 = 64;

/// Boundaries that are compared at once: the numbers before them, sorted, and behind the last one [`u32::MAX`]; all
/// [`biased`].
type Node = [i32; NODE];

/// Finds the interval that a number lies in.
#[derive(Clone, Debug)]
pub(super) enum RangeIndex {
    /// Numbers of up to 8 bits: a table.
    Direct(Box<[u8; 256]>),
    /// Few boundaries: all are compared.
    Nodes(Box<[Node]>),
    /// Numbers of up to 16 bits: a bitmap of where intervals start.
    Bitmap(Box<Bitmap>),
    /// Any number: the starts, sorted.
    Sorted(Box<[u32]>),
}

/// A set of 16-bit numbers.
#[derive(Clone, Debug)]
pub(super) struct Bitmap {
    words: [u64; 1 << 16 >> 6],
    /// By word: the number of members in the words before it.
    before: [u16; 1 << 16 >> 6],
}

impl RangeIndex {
    /// An index of numbers up to `max`, in intervals that start at `starts`: sorted, the first is 0, none is above `max`.
    pub(super) fn new(starts: &[u32], max: u32) -> RangeIndex {
        let bounds = &starts[1..];
        if max <= 0xff {
            let mut table = Box::new([0; 256]);
            for (row, &start) in starts.iter().enumerate() {
                table[start as usize..].fill(row as u8);
            }
            RangeIndex::Direct(table)
        } else if bounds.len() <= MAX_NODES * NODE {
            RangeIndex::Nodes(bounds.chunks(NODE).map(node).collect())
        } else if max <= 0xffff {
            RangeIndex::Bitmap(Box::new(Bitmap::new(bounds)))
        } else {
            RangeIndex::Sorted(starts.into())
        }
    }

    /// Puts in the place of each number that of its interval.
    #[inline(always)]
    pub(super) fn look_up<const B: usize>(&self, numbers: &mut [u32; B]) {
        match self {
            RangeIndex::Direct(table) => {
                for number in numbers {
                    *number = table[*number as usize % 256].into();
                }
            }
            RangeIndex::Nodes(nodes) => {
                let mut rows = [0; B];
                for node in nodes {
                    for (row, &number) in rows.iter_mut().zip(&*numbers) {
                        *row += up_to(node, biased(number));
                    }
                }
                *numbers = rows;
            }
            RangeIndex::Bitmap(map) => {
                for number in numbers {
                    *number = map.up_to(*number);
                }
            }
            RangeIndex::Sorted(starts) => {
                for number in numbers {
                    *number = starts.partition_point(|start| start <= number) as u32 - 1;
                }
            }
        }
    }
}

/// Maps a number so that signed comparison keeps the order: every processor compares several signed numbers at a time.
#[inline(always)]
fn biased(number: u32) -> i32 {
    (number ^ 1 << 31) as i32
}

/// At most [`NODE`] boundaries, none of which is 0.
fn node(bounds: &[u32]) -> Node {
    std::array::from_fn(|i| biased(bounds.get(i).map_or(u32::MAX, |start| start - 1)))
}

impl Bitmap {
    fn new(bounds: &[u32]) -> Bitmap {
        let mut map = Bitmap { words: [0; 1 << 16 >> 6], before: [0; 1 << 16 >> 6] };
        for &start in bounds {
            map.words[(start / WORD) as usize] |= 1 << (start % WORD);
        }
        let mut before = 0;
        for (word, count) in map.words.iter().zip(&mut map.before) {
            *count = before;
            before += word.count_ones() as u16;
        }
        map
    }

    /// Number of members up to `number`.
    #[inline(always)]
    fn up_to(&self, number: u32) -> u32 {
        let word = (number / WORD) as usize % self.words.len();
        let here = self.words[word] & u64::MAX >> (WORD - 1 - number % WORD);
        u32::from(self.before[word]) + here.count_ones()
    }
}

/// Boundaries of a node up to a [`biased`] number.
#[inline(always)]
fn up_to(node: &Node, number: i32) -> u32 {
    let mut up_to = 0;
    for &before in node {
        up_to += u32::from(number > before);
    }
    up_to
}
