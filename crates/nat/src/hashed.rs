//! Consistent hashing: which value of a set a connection gets by its hash.

use crate::addresses::ValueSet;
use crate::maglev::mix;
use crate::random::scale;
use mmb_conn::Tuple;
use mmb_random::Prf;

/// Number of probes in a set without a table. After them, the hash selects an index.
const PROBES: u64 = 64;

/// The index of the value that a hash selects. There must be a value.
///
/// A set that is too large for a table is probed with a sequence of hashes. The first hash that is a value of
/// the set selects that value. So removing a value moves only its own connections.
pub(super) fn pick(hash: u64, values: &ValueSet) -> u64 {
    values.maglev().find(hash).unwrap_or_else(|| {
        let (low, high) = values.hull().unwrap_or_default();
        let span = u128::MAX.checked_shr((low ^ high).leading_zeros()).unwrap_or(0);
        (0..PROBES)
            .find_map(|probe| values.index_of((low & !span) | (wide(hash, probe) & span)))
            .unwrap_or_else(|| scale(hash, values.len()))
    })
}

/// The hash of a connection that selects its server. Each `attempt` gives another hash. The hash does not
/// depend on the ingress.
pub(super) fn hash_of(prf: &Prf, tuple: &Tuple, attempt: u64) -> u64 {
    let mut bytes = [0; Tuple::BYTES + 8];
    let anywhere = tuple.with_ingress(&Tuple::default());
    bytes[..Tuple::BYTES].copy_from_slice(&anywhere.to_bytes());
    bytes[Tuple::BYTES..].copy_from_slice(&attempt.to_le_bytes());
    prf.hash(&bytes)
}

fn wide(hash: u64, probe: u64) -> u128 {
    let low = mix(hash ^ mix(probe));
    u128::from(mix(low)) << 64 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose weight becomes 0 moves hardly any connections of other servers, like a server that is
    /// removed.
    #[test]
    fn few_hashes_move_when_a_weight_changes() {
        let list = |weight| ValueSet::weighted(&[((700, 706), 2), ((707, 707), weight)]);
        let (before, after) = (given(&list(2), 20_000), given(&list(0), 20_000));
        assert!(after.iter().all(|server| *server != 707));
        let others = before.iter().zip(&after).filter(|(before, _)| **before != 707);
        let moved = others.filter(|(before, after)| before != after).count();
        assert!(moved < 20_000 / 20, "{moved} of other servers moved");
    }

    /// The server that each of `hashes` connections gets.
    fn given(servers: &ValueSet, hashes: u64) -> Vec<u128> {
        (0..hashes).map(|number| servers.nth(pick(mix(number), servers))).collect()
    }

    fn without(servers: &ValueSet, gone: u128) -> ValueSet {
        let rest = (0..servers.len()).map(|index| servers.nth(index)).filter(|server| *server != gone);
        ValueSet::new(rest.map(|server| (server, server)).collect())
    }

    #[test]
    fn tables_give_every_server_the_same_share() {
        for count in [1, 2, 3, 10, 100, 130, 131] {
            let servers = ValueSet::new(vec![(1 << 40, (1 << 40) + count - 1)]);
            let table = &servers.maglev().0;
            let mut shares = vec![0_u32; count as usize];
            table.iter().for_each(|server| shares[usize::from(*server)] += 1);
            let mean = table.len() as f64 / count as f64;
            assert!(shares.iter().all(|share| (f64::from(*share) - mean).abs() <= mean * 0.02), "{count}");
        }
    }

    /// At most 2/n of the connections move. The server's own connections are 1/n (docs/balancing.md).
    #[test]
    fn at_most_two_of_n_connections_move_when_a_server_goes() {
        for count in [3_u128, 10, 100, 130, 400] {
            let servers = ValueSet::new(vec![(700, 700 + count - 1)]);
            let moved = moved(&servers, &without(&servers, 701));
            assert!(moved <= 2.0 / count as f64, "{moved} of {count} servers' connections");
        }
    }

    #[test]
    fn few_connections_move_when_a_weighted_server_changes() {
        let list = |weight| -> Vec<_> {
            let weight = |server| if server == 40 { weight } else { (server % 5 + 1) as u8 };
            (0..100_u128).map(|server| ((server * 77, server * 77), weight(server))).collect()
        };
        let sum =
            |list: &[((u128, u128), u8)]| list.iter().map(|(_, weight)| f64::from(*weight)).sum::<f64>();
        let before = list(1);
        for weight in [0, 2, 9] {
            let after = list(weight);
            let share = f64::from(weight.max(1)) / sum(&after).min(sum(&before));
            let moved = moved(&ValueSet::weighted(&before), &ValueSet::weighted(&after));
            assert!(moved <= share + 1.0 / 100.0, "{moved} of the connections for weight {weight}");
        }
    }

    /// A server's permutation comes from its address, and servers are in the order of their addresses.
    #[test]
    fn the_order_of_a_list_moves_no_connection() {
        let list: Vec<_> =
            (0..50_u128).map(|server| ((server * 99, server * 99), (server % 3) as u8)).collect();
        let reversed: Vec<_> = list.iter().rev().copied().collect();
        assert!(moved(&ValueSet::weighted(&list), &ValueSet::weighted(&reversed)) == 0.0);
    }

    /// With weights that do not fit a table as whole rounds, the last, partial round must not favour servers.
    #[test]
    fn shares_follow_large_weights() {
        let list: Vec<_> = (0..120_u128).map(|server| ((server, server), 99 + (server % 2) as u8)).collect();
        let servers = ValueSet::weighted(&list);
        let table = &servers.maglev().0;
        let mut shares = vec![0_u32; list.len()];
        table.iter().for_each(|server| shares[usize::from(*server)] += 1);
        let weights: u32 = list.iter().map(|(_, weight)| u32::from(*weight)).sum();
        for (share, (_, weight)) in shares.iter().zip(&list) {
            let fair = table.len() as f64 * f64::from(*weight) / f64::from(weights);
            assert!((f64::from(*share) - fair).abs() < fair * 0.01, "{share} entries, {fair} would be fair");
        }
    }

    /// The share of a hundred thousand five-tuples that get another server.
    fn moved(before: &ValueSet, after: &ValueSet) -> f64 {
        const TUPLES: u32 = 100_000;
        let prf = Prf::new(mmb_random::Seed::repeatable(9));
        let moved = (0..TUPLES).filter(|number| {
            let addresses = [u128::from(0x0a00_0000 + number % 5000), 0xc000_0201];
            let ports = [1024 + (number / 5000) as u16, 443];
            let tuple = Tuple { addresses, ports, proto: 6, family: 4, ..Tuple::default() };
            let hash = hash_of(&prf, &tuple, 0);
            before.nth(pick(hash, before)) != after.nth(pick(hash, after))
        });
        f64::from(moved.count() as u32) / f64::from(TUPLES)
    }

    #[test]
    fn sets_without_a_table_lose_only_what_fell_on_a_server() {
        let servers = ValueSet::new(vec![(0x0A00_0000, 0x0A00_FFFF), (0x0A02_0000, 0x0A02_FFFF)]);
        let rest = ValueSet::new(vec![
            (0x0A00_0000, 0x0A00_0FFF),
            (0x0A00_1001, 0x0A00_FFFF),
            (0x0A02_0000, 0x0A02_FFFF),
        ]);
        assert!(servers.maglev().0.is_empty());
        let (before, after) = (given(&servers, 50_000), given(&rest, 50_000));
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 0x0A00_1000));
        let lower = before.iter().filter(|server| **server < 0x0A01_0000).count();
        assert!((24_000..26_000).contains(&lower));
        // With sparse addresses, perhaps no probe hits a server. Every hash still selects one.
        let sparse = ValueSet::new((0..7000).map(|number| (number << 100, number << 100)).collect());
        assert!(given(&sparse, 1000).iter().all(|server| sparse.index_of(*server).is_some()));
    }
}
