//! Searches for connections whose port can be reclaimed.

use super::*;
use crate::ReclaimCursor;

/// The numbers of the clients that a search visits until `stop`.
fn reclaimable(
    table: &ConnectionTable,
    cursor: &mut ReclaimCursor,
    proto: u8,
    max: usize,
    stop: usize,
) -> Vec<u32> {
    let mut reclaimable = Vec::new();
    table.search_unreplied(cursor, (proto, max), &mut |_, connection| {
        reclaimable.push((connection.tuple(Direction::Forward).addresses[0] - 0x0a00_0000) as u32);
        reclaimable.len() == stop
    });
    reclaimable
}

#[test]
fn a_search_goes_on_where_the_last_one_ended_and_comes_around() {
    let mut table = ConnectionTable::new(mmb_random::Seed::repeatable(7));
    for number in 0..10 {
        table.add(u64::from(number), number, proto::UDP).expect("there is room");
        table.add(u64::from(number), 100 + number, proto::TCP).expect("there is room");
    }
    let mut cursor = ReclaimCursor::default();
    assert_eq!(reclaimable(&table, &mut cursor, proto::UDP, 64, 4), [0, 1, 2, 3]);
    assert_eq!(reclaimable(&table, &mut cursor, proto::UDP, 64, 3), [4, 5, 6]);
    assert_eq!(reclaimable(&table, &mut cursor, proto::UDP, 64, 5), [7, 8, 9, 0, 1]);
    assert_eq!(
        reclaimable(&table, &mut cursor, proto::TCP, 64, 2),
        [100, 101],
        "protocols have queues of their own"
    );
    // At most the allowed number, and each once.
    assert!(reclaimable(&table, &mut cursor, proto::UDP, 3, 64).len() <= 3);
    let mut all = reclaimable(&table, &mut ReclaimCursor::default(), proto::UDP, 64, 64);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert!(reclaimable(&table, &mut cursor, proto::ICMP, 64, 64).is_empty());
}

#[test]
fn answered_connections_are_skipped_and_ended_ones_tolerated() {
    let mut table = ConnectionTable::new(mmb_random::Seed::repeatable(7));
    let ids: Vec<_> =
        (0..10).map(|number| table.add(0, number, proto::UDP).expect("there is room")).collect();
    let mut cursor = ReclaimCursor::default();
    assert_eq!(reclaimable(&table, &mut cursor, proto::UDP, 64, 2), [0, 1]);
    table.remove(ids[2]);
    table.touch(ids[5], Direction::Reply, 1, 60, None);
    let found = reclaimable(&table, &mut cursor, proto::UDP, 64, 64);
    assert!(found.iter().all(|number| ![2, 5].contains(number)));
    assert!([0, 1, 3, 4, 6, 7, 8, 9].iter().all(|number| found.contains(number)));
}
