//! Circles in a graph of uses.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of nodes that use each other in a circle: the strongly connected components of more than one node
/// (Tarjan, "Depth-first search and linear graph algorithms", 1972).
pub(crate) fn circles<N: Ord + Clone>(uses: &BTreeMap<N, BTreeSet<N>>) -> Vec<BTreeSet<N>> {
    let mut search = Search {
        uses,
        order: BTreeMap::new(),
        lowest: BTreeMap::new(),
        stack: Vec::new(),
        found: Vec::new(),
    };
    for node in uses.keys() {
        if !search.order.contains_key(node) {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'a, N> {
    uses: &'a BTreeMap<N, BTreeSet<N>>,
    /// When each node was found.
    order: BTreeMap<N, usize>,
    /// The earliest node on the stack that is reachable from each node.
    lowest: BTreeMap<N, usize>,
    stack: Vec<N>,
    found: Vec<BTreeSet<N>>,
}

impl<N: Ord + Clone> Search<'_, N> {
    fn visit(&mut self, node: &N) {
        let number = self.order.len();
        self.order.insert(node.clone(), number);
        let mut lowest = number;
        self.stack.push(node.clone());
        for next in self.uses.get(node).into_iter().flatten() {
            if !self.order.contains_key(next) {
                self.visit(next);
                lowest = lowest.min(self.lowest[next]);
            } else if self.stack.contains(next) {
                lowest = lowest.min(self.order[next]);
            }
        }
        self.lowest.insert(node.clone(), lowest);
        if lowest == number {
            let at = self.stack.iter().position(|other| other == node).expect("a node is on the stack");
            let circle: BTreeSet<N> = self.stack.drain(at..).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}
