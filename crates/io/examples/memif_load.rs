//! Loads a program that forwards between two memifs: frames of a capture go in by one and come back by the other.
//!
//! `memif_load SOCKET SOCKET CAPTURE BYTES SECONDS`: the program has the server's role on both sockets. Frames shorter than BYTES
//! are padded with zeros behind their packet. One thread sends as fast as the memif takes it and counts what comes back. After
//! half a second of warming up it prints `measuring`, and so much later frames sent and received and the time as JSON.

use mmb_io::dpdk::{Eal, EalOptions, EalThread, EthPort, EthQueue};
use mmb_io::mbuf::HEADROOM;
use mmb_io::pcap::{CaptureItem, CaptureReader};
use mmb_io::{BURST, Burst, MbufPool};
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::{Duration, Instant};

const DESCRIPTORS: u16 = 1024;
const BUFFERS: u32 = 16_384;
const MTU: u16 = 1500;
const WARMING_UP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [near, far, capture, bytes, seconds] = words.as_slice() else {
        return Err("usage: memif_load SOCKET SOCKET CAPTURE BYTES SECONDS".into());
    };
    let frames = frames(capture, bytes.parse()?)?;
    // Half for the pool, half for the devices.
    let memory = 2 * MbufPool::memory(BUFFERS, MbufPool::page_room());
    let eal = Eal::start(&EalOptions { memory, ..EalOptions::default() })?;
    let pool = MbufPool::create(&eal, "load", BUFFERS, MbufPool::page_room())?;
    let (near, far) = (client(&eal, &pool, 0, near)?, client(&eal, &pool, 1, far)?);
    connected(&near)?;
    connected(&far)?;
    let _member = EalThread::join();
    let mut load =
        Load { frames, next: 0, pool, near: near.queue(0), far: far.queue(0), sent: 0, received: 0 };
    load.run(WARMING_UP);
    println!("measuring");
    (load.sent, load.received) = (0, 0);
    let took = load.run(Duration::from_secs_f64(seconds.parse()?));
    println!(
        r#"{{"sent": {}, "received": {}, "seconds": {}}}"#,
        load.sent,
        load.received,
        took.as_secs_f64()
    );
    Ok(())
}

/// The capture's frames, each of at least so many bytes.
fn frames(path: &str, bytes: usize) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut reader = CaptureReader::open(BufReader::new(File::open(path)?))?;
    let mut frames = Vec::new();
    while let Some(item) = reader.next_item()? {
        if let CaptureItem::Packet(captured) = item {
            let mut frame = captured.data.to_vec();
            frame.resize(frame.len().max(bytes), 0);
            frames.push(frame);
        }
    }
    if frames.is_empty() { Err(format!("{path} holds no packets").into()) } else { Ok(frames) }
}

fn client(eal: &Eal, pool: &MbufPool, number: u16, socket: &str) -> Result<EthPort, Box<dyn Error>> {
    let mut port =
        EthPort::attach(eal, &format!("net_memif{number},role=client,socket={socket},socket-abstract=no"))?;
    port.start(1, DESCRIPTORS, MTU, pool)?;
    Ok(port)
}

fn connected(port: &EthPort) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while !port.info()?.link {
        if begun.elapsed() > PATIENCE {
            return Err("nobody answers on the socket".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

struct Load {
    frames: Vec<Vec<u8>>,
    next: usize,
    pool: MbufPool,
    near: EthQueue,
    far: EthQueue,
    sent: u64,
    received: u64,
}

impl Load {
    /// Sends and receives for so long; the time it took.
    fn run(&mut self, time: Duration) -> Duration {
        let begun = Instant::now();
        let (mut out, mut back) = (Burst::new(), Burst::new());
        while begun.elapsed() < time {
            let kept = out.len();
            if self.pool.alloc(&mut out, BURST - kept) {
                self.fill(&mut out[kept..]);
            }
            self.sent += self.near.send(&mut out) as u64;
            self.received += self.far.receive(&mut back) as u64;
            back.clear();
        }
        begun.elapsed()
    }

    fn fill(&mut self, burst: &mut [mmb_io::Mbuf]) {
        for mbuf in burst {
            let frame = &self.frames[self.next];
            mbuf.place(HEADROOM, frame.len());
            mbuf.frame_mut().copy_from_slice(frame);
            self.next = (self.next + 1) % self.frames.len();
        }
    }
}
