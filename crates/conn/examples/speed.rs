//! How long the table takes: `cargo run --release -p mmb-conn --example speed -- [CONNECTIONS]`.
//!
//! Finds and follows packets of established connections in vectors of 256, drawn at random, and makes and ends connections.
//! Nanoseconds a packet.

use mmb_base::Id;
use mmb_conn::{CloseReason, ConnId, ConnState, Connection, ConnectionTable, Direction, Tuple, Wire, proto};
use mmb_policy::settings::Timeouts;
use mmb_random::Seed;
use std::time::Instant;

const VECTOR: usize = 256;
const VECTORS: usize = 20_000;

/// A client's packets to a server, which sees another source.
fn tuples(number: u32) -> [Tuple; 2] {
    let ports = [1024 + (number % 60_000) as u16, 443];
    let addresses = [0x0a00_0000 + u128::from(number), 0xc633_6401];
    let forward = Tuple { addresses, ports, proto: proto::UDP, family: 4, ..Tuple::default() };
    let mut reply = forward.reversed();
    (reply.addresses[1], reply.ports[1]) =
        (0xcb00_7100 + u128::from(number >> 15), (number & 0x7fff) as u16 + 1024);
    [forward, reply]
}

/// Nanoseconds a packet: the median of many vectors, so that what else the machine does hardly counts. Tuples are made anew
/// for each vector before its time begins, as those of packets would be.
fn median(connections: u32, port: u16, mut work: impl FnMut(&[Tuple])) -> f64 {
    let mut random = 1u64;
    let mut times: Vec<f64> = (0..VECTORS)
        .map(|_| {
            let vector: [Tuple; VECTOR] = std::array::from_fn(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let of = tuples(((random >> 33) % u64::from(connections)) as u32);
                Tuple { wire: Wire { port, ..Wire::default() }, ..of[(random >> 32 & 1) as usize] }
            });
            let begin = Instant::now();
            work(&vector);
            begin.elapsed().as_nanos() as f64 / VECTOR as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let connections: u32 =
        std::env::args().nth(1).map_or(100_000, |number| number.parse().expect("a number"));
    let mut table = ConnectionTable::new(Seed::repeatable(7));
    table.configure(connections as usize, Timeouts::default(), Default::default());
    let begin = Instant::now();
    let mut longest = 0;
    for number in 0..connections {
        let [forward, reply] = tuples(number);
        let begin = Instant::now();
        let id =
            table.insert(0, forward, reply, None, &mut |_: &Connection, _: CloseReason| ()).expect("room");
        longest = longest.max(begin.elapsed().as_micros());
        table.touch(id, Direction::Reply, 0, 60, None);
    }
    let made = begin.elapsed().as_nanos() as f64 / f64::from(connections);
    println!("{connections} connections, {:.1} bytes each", table.memory() as f64 / f64::from(connections));
    println!("made in {made:.0} ns each, the slowest in {longest} us");

    let mut found = [None; VECTOR];
    let find = median(connections, 0, |vector| {
        table.find_all(vector, &mut found);
        std::hint::black_box(&found);
    });
    let follow = median(connections, 0, |vector| {
        table.find_all(vector, &mut found);
        for (id, direction) in found.iter().flatten() {
            table.touch(*id, *direction, 1, 60, None);
        }
    });
    let miss = median(connections, 5, |vector| {
        table.find_all(vector, &mut found);
        std::hint::black_box(&found);
    });
    println!("found in {find:.1} ns, found and followed in {follow:.1} ns, missed in {miss:.1} ns");

    let mut number = connections;
    let turnover = median(connections, 0, |vector| {
        for _ in vector {
            let old = number.wrapping_mul(2_654_435_761) % connections;
            table.remove(ConnId::new(old + 1).expect("ids count from 1"));
            let [forward, reply] = tuples(number);
            number += 1;
            let id = table
                .insert(1, forward, reply, None, &mut |_: &Connection, _: CloseReason| ())
                .expect("room");
            assert_eq!(table.get(id).state, ConnState::Unreplied);
        }
    });
    println!("ended and made in {turnover:.0} ns");
}
