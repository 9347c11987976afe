//! The HTTP rules of the current policy, and those of earlier policies that messages still use.
//!
//! Purpose: a message keeps the rules with which it began, so that it is edited as a whole or not at all.
//! Rules are therefore kept in *generations*. Each generation counts the connections that use it.
//!
//! Life-cycle: [`HttpGenerations::configure`] adds a generation with each change of the HTTP rules, off the
//! packet path, and removes generations that no connection uses. At most [`MAX_OLD_GENERATIONS`] are kept
//! besides the current one. Beyond that the oldest is removed, and its messages lose their rules.
//!
//! All generations share one scanner. If a new generation needs a larger pool, it gets another scanner. The
//! search states of earlier generations stay in the old scanner, which is kept as long as these generations
//! are.

use super::rule_sets::MAX_RULES;
use super::stream_pools::{Exchanged, RetiredPools};
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_httpedit::HttpRules;
use mmb_scan::Scanner;
use std::sync::Arc;

/// The most generations before the current one. With two sets of patterns each, all sets fit in a scanner.
pub(super) const MAX_OLD_GENERATIONS: usize = 4;

/// The HTTP rules of one policy.
#[derive(Debug)]
struct Generation {
    number: u32,
    rules: Arc<HttpRules>,
    /// Number of connections that use these rules.
    users: usize,
    /// The scanner of this generation and of earlier ones that have none. A generation without a scanner uses
    /// that of the next later one.
    scanner: Option<Scanner>,
}

/// All generations in use, the current one last.
#[derive(Debug, Default)]
pub(super) struct HttpGenerations {
    generations: ArrayVec<Generation, { MAX_OLD_GENERATIONS + 1 }>,
    number: u32,
    /// The policy has no HTTP rules. The current generation only serves to parse the messages of existing
    /// connections.
    matches_nothing: bool,
}

/// The rules and the scanner that connections of a generation use.
pub(super) struct GenerationTools<'g> {
    pub(super) rules: &'g HttpRules,
    pub(super) scanner: &'g mut Scanner,
}

impl HttpGenerations {
    /// Adds a generation if the rules have changed. If all rules are removed and connections are in use,
    /// these connections are still parsed: a body that leaves in another framing must continue in it. The
    /// memory for the rules was offered with the snapshot of generation `since`.
    pub(super) fn configure(
        &mut self,
        rules: Option<&Arc<HttpRules>>,
        is_in_use: bool,
        since: u64,
        exchanged: &mut Exchanged,
    ) {
        let previous = self.generations.last().map(|current| Arc::clone(&current.rules));
        let rules = match rules {
            Some(rules) => {
                let is_same = previous.as_ref().is_some_and(|previous| Arc::ptr_eq(previous, rules));
                // A larger pool needs a new generation: open search states stay in the old pool.
                if is_same && !self.matches_nothing && !exchanged.offer.http.has_scanner() {
                    return self.prepare(since, exchanged);
                }
                self.matches_nothing = false;
                Arc::clone(rules)
            }
            None if self.matches_nothing && is_in_use => return,
            None => match previous.filter(|_| is_in_use) {
                Some(previous) => {
                    self.matches_nothing = true;
                    previous
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
        if self.generations.len() == MAX_OLD_GENERATIONS + 1 {
            let scanner = self.remove(0, &mut exchanged.retired);
            scanner.into_iter().for_each(|scanner| exchanged.retired.scanner(scanner));
        }
        self.number = self.number.wrapping_add(1);
        let scanner = self.next_scanner(spare, exchanged);
        let number = self.number;
        self.generations.push(Generation { number, rules, users: 0, scanner });
        self.prepare(since, exchanged);
    }

    /// Removes the generations that no connection has. Returns the largest of their scanners.
    fn free_unused(&mut self, retired: &mut RetiredPools) -> Option<Scanner> {
        let mut spare: Option<Scanner> = None;
        for index in (0..self.generations.len()).rev() {
            if self.generations[index].users > 0 {
                continue;
            }
            let Some(scanner) = self.remove(index, retired) else { continue };
            let smaller = match spare.take() {
                Some(larger) if larger.pool_bytes() >= scanner.pool_bytes() => {
                    spare = Some(larger);
                    Some(scanner)
                }
                before => {
                    spare = Some(scanner);
                    before
                }
            };
            smaller.into_iter().for_each(|smaller| retired.scanner(smaller));
        }
        spare
    }

    /// Removes a generation. Its scanner passes to the generation before it, if that has none. Otherwise the
    /// scanner is returned.
    fn remove(&mut self, index: usize, retired: &mut RetiredPools) -> Option<Scanner> {
        let Generation { rules, scanner, .. } = self.generations.remove(index);
        retired.rules(rules);
        let heir = if index > 0 { self.generations.get_mut(index - 1) } else { None };
        match heir.filter(|heir| heir.scanner.is_none()) {
            Some(heir) => {
                heir.scanner = scanner;
                None
            }
            None => scanner,
        }
    }

    /// The scanner of a generation that begins: the one with the largest pool of the last generation's, the
    /// spare one and the offered one. The control side counts on that pool and on its sets. The last
    /// generation keeps its scanner, in which its states are open, unless the new one takes it.
    fn next_scanner(&mut self, spare: Option<Scanner>, exchanged: &mut Exchanged) -> Option<Scanner> {
        let Exchanged { offer, retired } = exchanged;
        let last = self.generations.last().and_then(|last| last.scanner.as_ref());
        let spare = match spare {
            Some(spare) if last.is_some_and(|last| last.pool_bytes() >= spare.pool_bytes()) => {
                retired.scanner(spare);
                None
            }
            spare => spare,
        };
        let offered = offer.http.take_larger(spare.as_ref().or(last), retired);
        match (offered, spare) {
            (Some(offered), spare) => {
                spare.into_iter().for_each(|spare| retired.scanner(spare));
                Some(offered)
            }
            (None, Some(spare)) => Some(spare),
            (None, None) => self.generations.last_mut()?.scanner.take(),
        }
    }

    /// Installs the pattern sets of the current generation in its scanner, and retires the sets that no
    /// generation uses.
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

    /// Whether the policy has HTTP rules, or connections still use earlier ones.
    pub(super) fn has_rules(&self) -> bool {
        !self.generations.is_empty()
    }

    /// Whether a generation is the current one.
    pub(super) fn is_current(&self, number: u32) -> bool {
        number == self.number
    }

    fn index(&self, number: u32) -> Option<usize> {
        self.generations.iter().rposition(|generation| generation.number == number)
    }

    /// The rules of a generation, if they are kept.
    pub(super) fn rules(&self, number: u32) -> Option<&HttpRules> {
        Some(&self.generations[self.index(number)?].rules)
    }

    /// Adds a connection to the current generation. `live` are its rules under the current policy. Returns
    /// the number of the generation, and the indices of the connection's rules in it, in ascending order.
    pub(super) fn enter(&mut self, live: &[RuleSlot]) -> Option<(u32, ArrayVec<u32, MAX_RULES>)> {
        let matches_nothing = self.matches_nothing;
        let current = self.generations.last_mut()?;
        current.users += 1;
        let mut own = ArrayVec::new();
        if !matches_nothing {
            let indices = live.iter().filter_map(|slot| current.rules.index_of(slot.number()));
            own.extend(indices.take(MAX_RULES));
        }
        own.sort_unstable();
        Some((current.number, own))
    }

    /// Removes a connection from a generation. Returns the scanner that the connection used.
    pub(super) fn leave(&mut self, number: u32) -> Option<&mut Scanner> {
        let index = self.index(number)?;
        let generation = &mut self.generations[index];
        generation.users = generation.users.saturating_sub(1);
        self.tools(number).map(|tools| tools.scanner)
    }

    /// The rules and the scanner of a generation.
    pub(super) fn tools(&mut self, number: u32) -> Option<GenerationTools<'_>> {
        let index = self.index(number)?;
        let (generation, later_generations) = self.generations[index..].split_first_mut()?;
        let own = generation.scanner.as_mut();
        let scanner =
            own.or_else(|| later_generations.iter_mut().find_map(|later| later.scanner.as_mut()))?;
        Some(GenerationTools { rules: &generation.rules, scanner })
    }
}
