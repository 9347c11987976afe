//! The rules on HTTP of the policy, and those of policies before that messages still have.
//!
//! Purpose: a message that has begun goes on with the rules that it began with, so that it is edited as a whole or not at all. Rules are therefore
//! kept in *generations*, each with the number of connections that have it.
//!
//! Life-cycle: [`HttpGenerations::configure`] begins a generation with each change of the rules on HTTP, off the packet path, and frees those
//! that no connection has. At most [`MOST_OLD`] are kept beside the current one; of more, the oldest is given up, and its messages lose their
//! rules.
//!
//! All generations use one scanner. Where a new one needs a larger pool, it gets another scanner; the states of those before stay valid in the
//! old one, which lives as long as they do.

use super::rule_sets::MOST_RULES;
use super::stream_pools::{Exchanged, RetiredPools};
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_httpedit::HttpRules;
use mmb_scan::Scanner;
use std::sync::Arc;

/// The most generations before the current one. With two sets of patterns each, all have room in a scanner.
pub(super) const MOST_OLD: usize = 4;

/// The rules of one policy.
#[derive(Debug)]
struct Generation {
    number: u32,
    rules: Arc<HttpRules>,
    /// Connections that have them.
    users: usize,
    /// The scanner of this one and those before; without, that of the next one.
    scanner: Option<Scanner>,
}

/// All rules that are in use; the current ones last.
#[derive(Debug, Default)]
pub(super) struct HttpGenerations {
    generations: ArrayVec<Generation, { MOST_OLD + 1 }>,
    number: u32,
    /// The policy has no rules: the current ones only serve to read on.
    matches_nothing: bool,
}

/// What connections of a generation work with.
pub(super) struct InForce<'g> {
    pub(super) rules: &'g HttpRules,
    pub(super) scanner: &'g mut Scanner,
}

impl HttpGenerations {
    /// Begins a generation if the rules are others. Without rules, connections that there are read on: a body that leaves in other framing
    /// goes on so. The memory for the rules was offered with the snapshot of generation `since`.
    pub(super) fn configure(
        &mut self,
        rules: Option<&Arc<HttpRules>>,
        is_in_use: bool,
        since: u64,
        exchanged: &mut Exchanged,
    ) {
        let before = self.generations.last().map(|current| Arc::clone(&current.rules));
        let rules = match rules {
            Some(rules) => {
                let is_same = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, rules));
                // A larger pool begins a generation: open states stay in the old pool.
                if is_same && !self.matches_nothing && !exchanged.offer.http.has_scanner() {
                    return self.prepare(since, exchanged);
                }
                self.matches_nothing = false;
                Arc::clone(rules)
            }
            None if self.matches_nothing && is_in_use => return,
            None => match before.filter(|_| is_in_use) {
                Some(before) => {
                    self.matches_nothing = true;
                    before
                }
                None => {
                    self.matches_nothing = false;
                    while !self.generations.is_empty() {
                        let scanner = self.remove(0, &mut exchanged.retired);
                        scanner.into_iter().for_each(|scanner| exchanged.retired.scanner(scanner));
                    }
                    return;
                }
            },
        };
        let spare = self.free_unused(&mut exchanged.retired);
        if self.generations.len() == MOST_OLD + 1 {
            let scanner = self.remove(0, &mut exchanged.retired);
            scanner.into_iter().for_each(|scanner| exchanged.retired.scanner(scanner));
        }
        self.number = self.number.wrapping_add(1);
        let scanner = self.next_scanner(spare, exchanged);
        let number = self.number;
        self.generations.push(Generation { number, rules, users: 0, scanner });
        self.prepare(since, exchanged);
    }

    /// Removes the generations that no connection has. If these are all, returns the last one's scanner.
    fn free_unused(&mut self, retired: &mut RetiredPools) -> Option<Scanner> {
        let mut spare: Option<Scanner> = None;
        for at in (0..self.generations.len()).rev() {
            if self.generations[at].users == 0 {
                let scanner = self.remove(at, retired);
                if let Some(before) = std::mem::replace(&mut spare, scanner) {
                    retired.scanner(before);
                }
            }
        }
        match self.generations.is_empty() {
            true => spare,
            false => {
                spare.into_iter().for_each(|scanner| retired.scanner(scanner));
                None
            }
        }
    }

    /// Removes a generation. Its scanner goes to the one before, if that needs it; else it is returned.
    fn remove(&mut self, at: usize, retired: &mut RetiredPools) -> Option<Scanner> {
        let Generation { rules, scanner, .. } = self.generations.remove(at);
        retired.rules(rules);
        let heir = if at > 0 { self.generations.get_mut(at - 1) } else { None };
        match heir.filter(|heir| heir.scanner.is_none()) {
            Some(heir) => {
                heir.scanner = scanner;
                None
            }
            None => scanner,
        }
    }

    /// The scanner of a generation that begins. It is the offered scanner if its pool is larger than that of the last
    /// generation's scanner or the spare scanner; otherwise it is that one.
    fn next_scanner(&mut self, spare: Option<Scanner>, exchanged: &mut Exchanged) -> Option<Scanner> {
        let Exchanged { offer, retired } = exchanged;
        let last = self.generations.last_mut().and_then(|last| last.scanner.take());
        let own = last.or(spare);
        let Some(larger) = offer.http.take_larger(own.as_ref(), retired) else { return own };
        match self.generations.last_mut() {
            Some(last) => last.scanner = own,
            None => own.into_iter().for_each(|spare| retired.scanner(spare)),
        }
        Some(larger)
    }

    /// Prepares the sets of the current generation, and gives up those that none has.
    fn prepare(&mut self, since: u64, Exchanged { offer, retired }: &mut Exchanged) {
        let Some(mut scanner) = self.generations.last_mut().and_then(|current| current.scanner.take()) else {
            return;
        };
        let sets = || self.generations.iter().flat_map(|generation| generation.rules.sets());
        scanner.release_unless(
            |old| sets().any(|set| set.digest() == old.digest()),
            |released| retired.set(released),
        );
        // If a set is missing, bodies are refused when they are scanned.
        offer.http.take_sets(since, retired, |prepared| match sets().any(|set| set.is(prepared.set())) {
            true => scanner.adopt(prepared).err(),
            false => Some(prepared),
        });
        if let Some(current) = self.generations.last_mut() {
            current.scanner = Some(scanner);
        }
    }

    /// Bytes of the scanners' pools that have been used.
    pub(super) fn touched(&self) -> u64 {
        self.generations
            .iter()
            .filter_map(|generation| generation.scanner.as_ref())
            .map(Scanner::touched)
            .sum()
    }

    /// Whether there are, or were, rules.
    pub(super) fn has_rules(&self) -> bool {
        !self.generations.is_empty()
    }

    /// Whether a generation is that of the policy.
    pub(super) fn is_current(&self, number: u32) -> bool {
        number == self.number
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.generations.iter().rposition(|generation| generation.number == number)
    }

    /// The rules of a generation, if they are kept.
    pub(super) fn rules(&self, number: u32) -> Option<&HttpRules> {
        Some(&self.generations[self.place(number)?].rules)
    }

    /// A connection that has these rules of the policy takes the current generation: its number, and which rules of it these are, in their order.
    pub(super) fn enter(&mut self, live: &[RuleSlot]) -> Option<(u32, ArrayVec<u32, MOST_RULES>)> {
        let matches_nothing = self.matches_nothing;
        let current = self.generations.last_mut()?;
        current.users += 1;
        let mut own = ArrayVec::new();
        if !matches_nothing {
            let indices = live.iter().filter_map(|slot| current.rules.index_of(slot.number()));
            own.extend(indices.take(MOST_RULES));
        }
        own.sort_unstable();
        Some((current.number, own))
    }

    /// A connection leaves a generation. Returns the scanner that it had.
    pub(super) fn leave(&mut self, number: u32) -> Option<&mut Scanner> {
        let at = self.place(number)?;
        let generation = &mut self.generations[at];
        generation.users = generation.users.saturating_sub(1);
        self.of(number).map(|of| of.scanner)
    }

    /// What connections of a generation work with.
    pub(super) fn of(&mut self, number: u32) -> Option<InForce<'_>> {
        let at = self.place(number)?;
        let (generation, behind) = self.generations[at..].split_first_mut()?;
        let own = generation.scanner.as_mut();
        let scanner = own.or_else(|| behind.iter_mut().find_map(|later| later.scanner.as_mut()))?;
        Some(InForce { rules: &generation.rules, scanner })
    }
}
