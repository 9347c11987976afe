//! The classifier: the tables of every packet class, and what their values stand for.

use crate::check::{Check, Subject};
use crate::compile::compile;
use crate::draft::ClassDraft;
use crate::keys::{Keys, Lane};
use crate::matches::{Deferred, Found, Scratch};
use crate::ports::{Ports, UnknownPort};
use crate::tuple::Tuple;
use mmb_packet::key::Key;
use mmb_packet::options::{self, OptionTable};
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
    pub(crate) lists: Vec<List>,
    pub(crate) items: Vec<Item>,
    pub(crate) checks: Vec<Check>,
}

/// The rules of one key: a range of items, of which those from `options` on have option tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) start: u32,
    pub(crate) options: u32,
    pub(crate) end: u32,
}

/// A rule on a list, with its range of checks: those of options begin at `options`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) rank: u32,
    pub(crate) checks: u32,
    pub(crate) options: u32,
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
        if !scratch.deferred.is_empty() {
            self.classify_options(keys, packets, layouts, scratch);
        }
        scratch.settle();
    }

    /// Holds packets against the option tests of the lists that they hit, packet by packet.
    fn classify_options(
        &self,
        keys: &Keys,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        scratch: &mut Scratch,
    ) {
        scratch.deferred.sort_unstable_by_key(|deferred| deferred.packet);
        let mut parsed = None;
        for at in 0..scratch.deferred.len() {
            let Deferred { packet, key, list } = scratch.deferred[at];
            let (number, key) = (usize::from(packet), usize::from(key));
            let subject = Subject { packet: &packets[number], layout: &layouts[number] };
            if parsed != Some(packet) {
                scratch.options.fill(options::area(subject.packet, subject.layout));
                parsed = Some(packet);
            }
            let List { options, end, .. } = self.pools.lists[list as usize];
            for item in &self.pools.items[options as usize..end as usize] {
                let holds = || match subject.layout.class {
                    Class::Ip4 => self.pools.holds(item, &keys.ip4.keys()[key], &subject),
                    Class::Ip6 => self.pools.holds(item, &keys.ip6.keys()[key], &subject),
                    Class::Other => self.pools.holds(item, &keys.other.keys()[key], &subject),
                };
                if self.pools.holds_for(item, &scratch.options) && holds() {
                    scratch.hit(packet, item.rank);
                }
            }
        }
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
        if lane.len() == 0 {
            return;
        }
        for tuple in &self.tuples {
            let found = tuple.probe(lane.keys(), lane.len(), &mut scratch.probe);
            if tuple.plain {
                scratch.hit_found(found, lane.packets(), SOLE);
                continue;
            }
            for at in 0..found {
                let Found { key, value } = scratch.probe.found[at];
                let packet = lane.packets()[usize::from(key)];
                if value & SOLE != 0 {
                    scratch.hit(packet, value & !SOLE);
                    continue;
                }
                let List { start, options, end } = pools.lists[value as usize];
                let number = usize::from(packet);
                let subject = Subject { packet: &packets[number], layout: &layouts[number] };
                for item in &pools.items[start as usize..options as usize] {
                    if pools.holds(item, &lane.keys()[usize::from(key)], &subject) {
                        scratch.hit(packet, item.rank);
                    }
                }
                if options < end {
                    scratch.deferred.push(Deferred { packet, key, list: value });
                }
            }
        }
    }
}

impl Pools {
    /// Whether the checks of an item hold, but for those of options.
    #[inline]
    fn holds<const N: usize>(&self, item: &Item, key: &Key<N>, subject: &Subject<'_, '_>) -> bool {
        let checks = &self.checks[item.checks as usize..item.options as usize];
        checks.iter().all(|check| check.holds(key, subject))
    }

    /// Whether the option checks of an item hold.
    #[inline]
    fn holds_for(&self, item: &Item, options: &OptionTable) -> bool {
        let checks = &self.checks[item.options as usize..item.end as usize];
        checks.iter().all(|check| check.holds_for(options))
    }
}
