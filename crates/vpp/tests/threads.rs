//! VPP's workers own connections under their own numbers; its main thread does only where it is alone.

#[path = "../src/threads.rs"]
mod threads;

use threads::ThreadMap;

#[test]
fn workers_with_receive_queues_share_the_connections() {
    let threads = ThreadMap::new(4);
    let by_queues = [
        ([false; 4], vec![0, 1, 2]),
        ([true, false, false, false], vec![0, 1, 2]),
        ([true, false, true, false], vec![1]),
        ([false, true, false, true], vec![0, 2]),
    ];
    for (have_queues, workers) in by_queues {
        assert_eq!(threads.sharing(&have_queues), workers, "{have_queues:?}");
    }
    assert_eq!(threads.sharing(&[]), [0, 1, 2], "before anything is known");
    assert_eq!(ThreadMap::new(1).sharing(&[true]), [0], "the main thread where it is alone");
}

#[test]
fn the_main_thread_owns_connections_only_without_workers() {
    let alone = ThreadMap::new(1);
    assert_eq!((alone.owning(), alone.others(), alone.worker(0), alone.thread(0)), (1, 0, 0, 0));
    for workers in 1..4u16 {
        let threads = ThreadMap::new(usize::from(workers) + 1);
        assert_eq!((threads.owning(), threads.others()), (usize::from(workers), 1));
        assert_eq!(threads.worker(0), threads.owning(), "behind those that own");
        for worker in 0..workers {
            assert_eq!(threads.worker(worker + 1), usize::from(worker), "VPP's number of its worker");
        }
        for thread in 0..=workers {
            assert_eq!(threads.thread(threads.worker(thread) as u16), thread);
        }
    }
}
