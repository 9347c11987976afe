//! A wire between two devices, without an engine: what the ports alone can carry.
//!
//! `wire DEVICE DEVICE`; ends with standard input.

use mmb_io::{Burst, Device, OpenOptions, OpenPorts, PortLink};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices: Vec<String> = std::env::args().skip(1).collect();
    let mut wanted = Vec::new();
    for (name, device) in ["a", "b"].into_iter().zip(&devices) {
        wanted.push((name.to_owned(), Device::parse(device)?));
    }
    let mut ports = OpenPorts::open(&wanted, &OpenOptions { workers: 1, mtu: None, flows: 0 })?;
    for note in ports.take_notes() {
        println!("{note}");
    }
    for port in ports.ports() {
        println!("{}: {} {:?} mtu {}", port.name(), port.device(), port.info(), port.mtu());
    }
    let mut links = Vec::new();
    for port in ports.ports() {
        links.append(&mut port.links(1)?);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::new();
            let mut waiter = PortLink::waiter(&links);
            let mut counts = [0u64; 4];
            while !stop.load(Ordering::Relaxed) {
                let mut got = 0;
                for i in 0..links.len() {
                    let received = links[i].receive(&mut burst);
                    got += received.frames;
                    counts[i] += received.frames as u64;
                    let other = (i + 1) % links.len();
                    let mut tries = 0;
                    while !burst.is_empty() && tries < 64 {
                        tries += usize::from(links[other].send(&mut burst).frames == 0);
                    }
                    counts[2 + other] += burst.len() as u64;
                    burst.clear();
                }
                if got == 0 {
                    waiter.wait(std::time::Duration::from_millis(10));
                }
            }
            println!("received {:?}, not sent {:?}", &counts[..2], &counts[2..]);
        });
        let _ = std::io::stdin().read(&mut [0; 16]);
        stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}
