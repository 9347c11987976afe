//! Buffers through a DPDK device that gives back what it is sent. Needs no root, no device and no huge pages.
#![cfg(dpdk)]

use mmb_io::dpdk::{Eal, EalOptions, EalThread, EthPort};
use mmb_io::mbuf::HEADROOM;
use mmb_io::{Burst, MbufPool};

#[test]
fn what_is_sent_comes_back_and_nothing_is_leaked() {
    let eal = Eal::start(&EalOptions { memory: 64 << 20, ..EalOptions::default() }).expect("DPDK starts");
    assert!(Eal::start(&EalOptions::default()).is_err(), "it starts once a process");
    let pool = MbufPool::create(&eal, "loopback", 4096, MbufPool::page_room()).expect("enough memory");
    assert!(eal.huge_pages() || pool.fits_xdp());
    let mut port = EthPort::attach(&eal, "net_ring0").expect("a ring");
    port.start(1, 512, 1500, &pool).expect("started");
    assert_eq!(port.info().expect("information").driver, "net_ring");
    let mut queue = port.queue(0);
    let _member = EalThread::join();
    let (mut out, mut back) = (Burst::new(), Burst::new());
    for round in 0..1000u32 {
        assert!(pool.alloc(&mut out, 100), "round {round}: a buffer is leaked");
        for (i, mbuf) in out.iter_mut().enumerate() {
            mbuf.place(HEADROOM - 7, 60 + i);
            mbuf.frame_mut().fill(round as u8);
        }
        assert_eq!(queue.send(&mut out), 100);
        assert!(out.is_empty());
        assert_eq!(queue.receive(&mut back), 100);
        for (i, mbuf) in back.drain(..).enumerate() {
            assert_eq!(mbuf.len(), 60 + i);
            assert!(mbuf.bytes().iter().all(|&byte| byte == round as u8));
        }
    }
    // The ring has 1,024 places: what finds none stays with the sender.
    let mut unsent = 0;
    for _ in 0..6 {
        assert!(pool.alloc(&mut out, 256));
        queue.send(&mut out);
        unsent += out.len();
        out.clear();
    }
    assert!(unsent > 0);
    assert!(EthPort::attach(&eal, "no_such_driver0").is_err());
}
