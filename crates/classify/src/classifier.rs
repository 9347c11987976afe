//! The classifier: the tables of every packet class, and what their values stand for.

use crate::check::{Check, Subject};
use crate::compile::compile;
use crate::draft::ClassDraft;
use crate::keys::{Keys, Lane};
use crate::matches::{DEFERRED, Hit, Scratch};
use crate::ports::{Ports, UnknownPort};
use crate::tuple::Tuple;
use mmb_packet::key::Key;
use mmb_packet::options;
use mmb_packet::{Class, Layout, Packet};
use mmb_policy::Rule;

/// Marks a value that is the rank of the only, unconditional rule of its key; others are numbers of lists.
pub(crate) const SOLE: u32 = 1 << 31;

/// All rules of a policy, ready to be looked up. Built once, then only read.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    ip4: ClassTables<64>,
    ip6: ClassTables<80>,
    other: ClassTables<64>,
    pools: Pools,
}

/// What values stand for, for all classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Lists of items, as ranges of `items`.
    pub(crate) lists: Vec<(u32, u32)>,
    pub(crate) items: Vec<Item>,
    pub(crate) checks: Vec<Check>,
}

/// A rule on a list, with its range of checks: those of options begin at `deferred`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) rank: u32,
    pub(crate) checks: u32,
    pub(crate) deferred: u32,
    pub(crate) end: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ClassTables<const N: usize> {
    pub(crate) tuples: Vec<Tuple<N>>,
    pub(crate) stats: Vec<TableStats>,
    /// The most rules that one packet can match.
    pub(crate) most: usize,
}

impl<const N: usize> Default for ClassTables<N> {
    fn default() -> Self {
        ClassTables { tuples: Vec::new(), stats: Vec::new(), most: 0 }
    }
}

/// One tuple, for people to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct TableStats {
    /// The packet class.
    pub class: Class,
    /// The fields that its mask covers, in words: `ip-proto tcp-dport`.
    pub mask: String,
    /// Rules in it.
    pub rules: usize,
    /// Distinct keys of these rules.
    pub entries: usize,
    /// Buckets of its hash table.
    pub buckets: usize,
    /// Used share of the buckets' places, 0 to 1.
    pub load: f64,
}

impl Classifier {
    /// Compiles rules, given in the order of their ranks. `seed` keys the hashes.
    ///
    /// # Errors
    /// The rank of a rule that names a port that does not exist, and the name.
    pub fn build<'r>(
        rules: impl IntoIterator<Item = &'r Rule>,
        ports: &Ports,
        seed: u64,
    ) -> Result<Classifier, (usize, UnknownPort)> {
        let mut drafts = [Class::Ip4, Class::Ip6, Class::Other].map(ClassDraft::new);
        let mut pools = Pools::default();
        for (rank, rule) in rules.into_iter().enumerate() {
            for draft in &mut drafts {
                let compiled = compile(rule, draft.class, ports).map_err(|port| (rank, port))?;
                if let Some(compiled) = compiled {
                    draft.place(compiled, rank as u32, &mut pools);
                }
            }
        }
        let [ip4, ip6, other] = drafts;
        let mut random = seed;
        Ok(Classifier {
            ip4: ip4.build(&mut pools, &mut random),
            ip6: ip6.build(&mut pools, &mut random),
            other: other.build(&mut pools, &mut random),
            pools,
        })
    }

    /// The most rules that one packet can match, or more: what [`Scratch::fit`] wants to know.
    pub fn most_matches(&self) -> usize {
        self.ip4.most.max(self.ip6.most).max(self.other.most)
    }

    /// Whether some rule can match packets of a class. If none can, the classifier needs no keys of it.
    #[inline]
    pub fn wants(&self, class: Class) -> bool {
        match class {
            Class::Ip4 => !self.ip4.tuples.is_empty(),
            Class::Ip6 => !self.ip6.tuples.is_empty(),
            Class::Other => !self.other.tuples.is_empty(),
        }
    }

    /// Finds the rules that each packet of a vector matches; `scratch` then tells them. `packets` and `layouts` are
    /// those of the whole vector, which the lanes' packet numbers refer to.
    pub fn classify(&self, keys: &Keys, packets: &[Packet<'_>], layouts: &[Layout], scratch: &mut Scratch) {
        scratch.clear();
        self.ip4.classify(&keys.ip4, &self.pools, packets, layouts, scratch);
        self.ip6.classify(&keys.ip6, &self.pools, packets, layouts, scratch);
        self.other.classify(&keys.other, &self.pools, packets, layouts, scratch);
        scratch.settle(|packet, item, options| {
            let item = self.pools.items[item as usize];
            let table = options.table(|| options::area(&packets[packet], &layouts[packet]));
            let checks = &self.pools.checks[item.deferred as usize..item.end as usize];
            checks.iter().all(|check| check.holds_for(table)).then_some(item.rank)
        });
    }

    /// The tuples of every class.
    pub fn tables(&self) -> impl Iterator<Item = &TableStats> {
        self.ip4.stats.iter().chain(&self.ip6.stats).chain(&self.other.stats)
    }
}

impl<const N: usize> ClassTables<N> {
    fn classify(
        &self,
        lane: &Lane<N>,
        pools: &Pools,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        scratch: &mut Scratch,
    ) {
        let keys = lane.keys();
        if keys.is_empty() {
            return;
        }
        for tuple in &self.tuples {
            let found = tuple.probe(keys, keys.len(), &mut scratch.probe);
            for &(key, value) in &scratch.probe.found[..found] {
                let packet = lane.packets()[usize::from(key)];
                if value & SOLE != 0 {
                    scratch.log.push(Hit { packet, code: value & !SOLE });
                    continue;
                }
                let at = usize::from(packet);
                let subject = Subject { packet: &packets[at], layout: &layouts[at] };
                pools.hits(value, &keys[usize::from(key)], &subject, |code| {
                    scratch.log.push(Hit { packet, code })
                });
            }
        }
    }
}

impl Pools {
    /// Runs the checks of every rule on a list but those of options.
    fn hits<const N: usize>(
        &self,
        list: u32,
        key: &Key<N>,
        subject: &Subject<'_, '_>,
        mut hit: impl FnMut(u32),
    ) {
        let (start, end) = self.lists[list as usize];
        for (item, number) in self.items[start as usize..end as usize].iter().zip(start..) {
            let checks = &self.checks[item.checks as usize..item.deferred as usize];
            if checks.iter().all(|check| check.holds(key, subject)) {
                hit(if item.deferred == item.end { item.rank } else { number | DEFERRED });
            }
        }
    }
}
