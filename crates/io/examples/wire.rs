//! A wire between two devices, without an engine: what the ports alone can carry.
//!
//! `wire DEVICE DEVICE`; ends with standard input.

use mmb_io::{Burst, Device, OpenOptions, Ports};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices: Vec<String> = std::env::args().skip(1).collect();
    let mut wanted = Vec::new();
    for (name, device) in ["a", "b"].into_iter().zip(&devices) {
        wanted.push((name.to_owned(), Device::parse(device)?));
    }
    let mut ports = Ports::open(&wanted, &OpenOptions { workers: 1, mtu: None })?;
    for note in ports.take_notes() {
        println!("{note}");
    }
    for port in ports.ports() {
        println!("{}: {} {:?} mtu {}", port.name(), port.device(), port.info(), port.mtu());
    }
    let mut links: Vec<_> = ports.ports().iter().flat_map(|port| port.links(1)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::new();
            let mut counts = [0u64; 4];
            while !stop.load(Ordering::Relaxed) {
                let mut got = 0;
                for i in 0..links.len() {
                    let received = links[i].receive(&mut burst);
                    got += received.frames;
                    counts[i] += received.frames as u64;
                    let other = (i + 1) % links.len();
                    for _ in 0..100 {
                        links[other].send(&mut burst);
                        if burst.is_empty() {
                            break;
                        }
                    }
                    counts[2 + other] += burst.len() as u64;
                    burst.clear();
                }
                if got == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            }
            println!("received {:?}, not sent {:?}", &counts[..2], &counts[2..]);
        });
        let _ = std::io::stdin().read(&mut [0; 16]);
        stop.store(true, Ordering::Relaxed);
    });
    ports.close();
    Ok(())
}
