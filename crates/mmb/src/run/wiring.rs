//! Ports and the wires between them, from the command line.

use anyhow::{Context, bail, ensure};
use mmb_engine::{PortSpec, PortTable};
use mmb_io::{Device, OpenPorts};
use mmb_packet::PortId;

/// The longest name of a port.
const MAX_NAME: usize = 32;

/// Named devices, and the egress port of each port's packets.
#[derive(Debug)]
pub(super) struct PortWiring {
    /// Names and devices, by port number.
    pub(super) devices: Vec<(String, Device)>,
    /// The port at the other end of each port's wire.
    pub(super) peers: Vec<Option<usize>>,
}

impl PortWiring {
    /// Parses `NAME=DEVICE`s and `A,B`s. Without wires, ports are paired in the order given.
    ///
    /// # Errors
    /// The ports or wires are wrong.
    pub(super) fn read(ports: &[String], wires: &[String]) -> anyhow::Result<PortWiring> {
        let mut devices: Vec<(String, Device)> = Vec::new();
        for port in ports {
            let (name, device) = port.split_once('=').with_context(|| {
                format!("--port {port}: a port is NAME=DEVICE, for instance inside={port}")
            })?;
            check_name(name).with_context(|| format!("--port {port}"))?;
            ensure!(!devices.iter().any(|(other, _)| other == name), "two ports are called '{name}'");
            devices.push((name.to_owned(), Device::parse(device).with_context(|| format!("--port {port}"))?));
        }
        let mut wiring = PortWiring { peers: vec![None; devices.len()], devices };
        if wires.is_empty() {
            ensure!(
                wiring.devices.len().is_multiple_of(2),
                "ports pair in the order given, and '{}' is left over: give it a partner, or say with --wire A,B \
                 which ports form a wire",
                wiring.devices.last().map_or("", |(name, _)| name)
            );
            wiring.peers = (0..wiring.devices.len()).map(|port| Some(port ^ 1)).collect();
        }
        for wire in wires {
            wiring.connect(wire).with_context(|| format!("--wire {wire}"))?;
        }
        Ok(wiring)
    }

    /// Returns the name of the port at the other end of a port's wire.
    pub(super) fn peer_name(&self, port: usize) -> Option<&str> {
        self.peers[port].map(|peer| self.devices[peer].0.as_str())
    }

    /// Returns the engine's table of the open ports.
    pub(super) fn table(&self, ports: &OpenPorts) -> PortTable {
        let spec = |(port, peer): (&mmb_io::Port, &Option<usize>)| PortSpec {
            name: port.name().to_owned(),
            mtu: Some(port.mtu()),
            forward: peer.map(|peer| PortId(peer as u16)).into(),
        };
        PortTable(ports.ports().iter().zip(&self.peers).map(spec).collect())
    }

    /// Returns a message for each wire whose ends have different MTUs.
    pub(super) fn notes_on_mtus(&self, mtus: &[u32]) -> Vec<String> {
        let mut notes = Vec::new();
        for (port, peer) in self.peers.iter().enumerate() {
            let Some(peer) = peer.filter(|&peer| peer > port && mtus[peer] != mtus[port]) else { continue };
            let (small, large) = if mtus[port] < mtus[peer] { (port, peer) } else { (peer, port) };
            notes.push(format!(
                "ports {} and {} form a wire and have different MTUs, {} and {}: larger packets for {} are dropped \
                 (mtu-exceeded)",
                self.devices[small].0, self.devices[large].0, mtus[small], mtus[large], self.devices[small].0
            ));
        }
        notes
    }

    fn connect(&mut self, wire: &str) -> anyhow::Result<()> {
        let (a, b) = wire.split_once(',').context("a wire is A,B: the names of two ports")?;
        let (a, b) = (self.number(a)?, self.number(b)?);
        ensure!(a != b, "a wire has two ends");
        for port in [a, b] {
            ensure!(self.peers[port].is_none(), "port '{}' is in a wire already", self.devices[port].0);
        }
        self.peers[a] = Some(b);
        self.peers[b] = Some(a);
        Ok(())
    }

    fn number(&self, name: &str) -> anyhow::Result<usize> {
        let names: Vec<String> = self.devices.iter().map(|(name, _)| name.clone()).collect();
        match names.iter().position(|other| other == name) {
            Some(number) => Ok(number),
            None => match mmb_io::nearest::nearest(name, &names) {
                Some(nearest) => bail!("no port is called '{name}'; did you mean '{nearest}'?"),
                None => bail!("no port is called '{name}'; the ports are {}", names.join(", ")),
            },
        }
    }
}

/// Checks that a name is one word of the rule language.
fn check_name(name: &str) -> anyhow::Result<()> {
    ensure!(!name.is_empty(), "a port needs a name in front of '='");
    ensure!(name.len() <= MAX_NAME, "names of ports have at most {MAX_NAME} characters");
    ensure!(
        name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter)),
        "names of ports are made of letters, digits, '-', '_' and '.'"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ports: &[&str], wires: &[&str]) -> anyhow::Result<PortWiring> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        PortWiring::read(&owned(ports), &owned(wires))
    }

    fn refused(ports: &[&str], wires: &[&str]) -> String {
        format!("{:#}", read(ports, wires).expect_err("refused"))
    }

    #[test]
    fn ports_pair_in_the_order_given() {
        let wiring = read(&["a=x", "b=y", "c=z", "d=w"], &[]).expect("good");
        assert_eq!(wiring.peers, [Some(1), Some(0), Some(3), Some(2)]);
        assert_eq!(wiring.peer_name(3), Some("c"));
    }

    #[test]
    fn wires_say_otherwise() {
        let wiring = read(&["a=x", "b=y", "c=z"], &["a,c"]).expect("good");
        assert_eq!(wiring.peers, [Some(2), None, Some(0)]);
    }

    #[test]
    fn different_mtus_of_a_wire_are_told_once() {
        let wiring = read(&["a=x", "b=y", "c=z", "d=w"], &[]).expect("good");
        assert_eq!(wiring.notes_on_mtus(&[1500, 1500, 9000, 9000]), [""; 0]);
        let notes = wiring.notes_on_mtus(&[1500, 1500, 9000, 1400]);
        assert_eq!(
            notes,
            [
                "ports d and c form a wire and have different MTUs, 1400 and 9000: larger packets for d are dropped \
              (mtu-exceeded)"
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refused(&["eth0"], &[]).contains("inside=eth0"));
        assert!(refused(&["=eth0"], &[]).contains("needs a name"));
        assert!(refused(&["a b=eth0"], &[]).contains("letters"));
        assert!(refused(&["a=x", "a=y"], &[]).contains("two ports are called 'a'"));
        assert!(refused(&["a=x", "b=y", "c=z"], &[]).contains("'c' is left over"));
        assert!(refused(&["inside=x", "outside=y"], &["inside,outsid"]).contains("did you mean 'outside'"));
        assert!(refused(&["a=x", "b=y"], &["a,a"]).contains("two ends"));
        assert!(refused(&["a=x", "b=y", "c=z"], &["a,b", "b,c"]).contains("already"));
        assert!(refused(&["a=x y", "b=y"], &[]).contains("blanks"));
    }
}
