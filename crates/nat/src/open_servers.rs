//! The servers of a list that take new connections, while others are out of service.

use crate::addresses::ValueSet;
use crate::hashed::pick;
use crate::maglev::mix;
use crate::random::scale;
use std::sync::Arc;

/// The servers of a list that take new connections. Copies share the data.
///
/// The control side creates it when a server is taken out of service or returns, and publishes it for a rule
/// with [`Nat::set_open_servers`](super::Nat::set_open_servers). The list and its hash table do not change.
/// Only connections that would go to a server out of service go elsewhere, until that server returns.
#[derive(Clone, Debug)]
pub struct OpenServers(Arc<OpenServersInner>);

#[derive(Debug)]
struct OpenServersInner {
    /// A bit for each value, by index.
    open: Box<[u64]>,
    /// The turns of the list that belong to open servers.
    turns: Box<[u16]>,
}

/// The number of hashes that are tried to find an open server. Unless more than three of four servers are out
/// of service, less than one in ten million connections needs more. Such connections are spread over the open
/// servers by weight.
const REHASHES: u64 = 64;

impl OpenServers {
    /// The largest list whose servers can be taken out of service one by one.
    pub const MAX_SERVERS: u64 = 4096;

    /// Those of `servers` whose indices `is_open` selects. There must be at most [`OpenServers::MAX_SERVERS`]
    /// servers. A server of weight 0 is never open.
    pub fn new(servers: &ValueSet, is_open: impl Fn(u64) -> bool) -> OpenServers {
        let turns = (0..servers.turns()).map(|turn| servers.at_turn(turn)).filter(|index| is_open(*index));
        let turns: Box<[u16]> = turns.map(|index| index as u16).collect();
        let mut open = vec![0; servers.len().div_ceil(64) as usize].into_boxed_slice();
        turns.iter().for_each(|index| open[usize::from(index / 64)] |= 1 << (index % 64));
        OpenServers(Arc::new(OpenServersInner { open, turns }))
    }

    /// Whether a server takes new connections.
    pub(super) fn has(&self, index: u64) -> bool {
        self.0.open.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The number of turns after which every open server has had its share.
    pub(super) fn turns(&self) -> u64 {
        self.0.turns.len() as u64
    }

    /// The index of the server whose turn it is. `turn` is below [`OpenServers::turns`].
    pub(super) fn at_turn(&self, turn: u64) -> u64 {
        self.0.turns[turn as usize].into()
    }

    /// The index of the open server that a hash selects. There must be an open server.
    pub(super) fn pick(&self, hash: u64, servers: &ValueSet) -> u64 {
        let hashes =
            (0..REHASHES).map(|attempt| if attempt == 0 { hash } else { mix(hash.wrapping_add(attempt)) });
        let open = hashes.map(|hash| pick(hash, servers)).find(|index| self.has(*index));
        open.unwrap_or_else(|| self.at_turn(scale(hash, self.turns())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_servers_that_are_out_move_and_they_come_back() {
        let servers = ValueSet::weighted(&[((10, 29), 1), ((30, 39), 3), ((40, 40), 0)]);
        let hashes = || (0..20_000).map(mix);
        for out in [vec![3], vec![0, 25, 29], (0..28).collect::<Vec<u64>>()] {
            let open = OpenServers::new(&servers, |index| !out.contains(&index));
            let mut shares = [0_u32; 31];
            for hash in hashes() {
                let (before, now) = (pick(hash, &servers), open.pick(hash, &servers));
                assert!(open.has(now) && !out.contains(&now) && now != 30);
                assert!(before == now || out.contains(&before));
                shares[now as usize] += 1;
            }
            // Connections that move are spread by weight, like the others.
            let fair = 20_000.0 / open.turns() as f64;
            let weighs = |index: usize| if index < 20 { 1.0 } else { 3.0 };
            for index in (0..30).filter(|index| open.has(*index as u64)) {
                let expected = fair * weighs(index);
                let deviation = (f64::from(shares[index]) - expected).abs();
                assert!(deviation < 6.0 * expected.sqrt(), "{index}: {shares:?}");
            }
        }
    }

    #[test]
    fn turns_are_those_of_open_servers() {
        let servers = ValueSet::weighted(&[((10, 10), 2), ((11, 12), 1), ((13, 13), 0)]);
        let open = OpenServers::new(&servers, |index| index != 1);
        let mut turns: Vec<_> = (0..open.turns()).map(|turn| open.at_turn(turn)).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 0, 2]);
        assert_eq!(
            (0..5).map(|index| open.has(index)).collect::<Vec<_>>(),
            [true, false, true, false, false]
        );
        assert_eq!(OpenServers::new(&servers, |index| index == 3).turns(), 0, "weight 0 is never open");
        assert!(!OpenServers::new(&ValueSet::new(vec![(1, 9)]), |_| false).has(0));
    }
}
