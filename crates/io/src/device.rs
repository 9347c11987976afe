//! Devices as they are written: `--port NAME=DEVICE`.

use crate::error::PortError;
use std::fmt;

/// What stands behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A kernel interface, by the best means that works: `eth0`.
    Interface(String),
    /// The same by another name, for scripts that say what they expect: `af_xdp:eth0`. It falls back as well.
    AfXdp(String),
    /// A kernel interface through AF_PACKET: `af_packet:eth0`.
    AfPacket(String),
    /// A PCI device: `0000:01:00.0`, with devargs behind a comma if any.
    Pci(String),
    /// Shared memory with another program: `memif:/run/x.sock,id=0,role=server`.
    Memif(Memif),
    /// Any device of DPDK: `dpdk:net_null0`.
    Dpdk(String),
}

/// One end of a memif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memif {
    /// The path of the socket on which the two ends find each other.
    pub path: String,
    /// This end listens.
    pub server: bool,
    /// Everything else, as the driver takes it: `id=0`, `rsize=10`.
    pub options: Vec<String>,
}

impl Device {
    /// Reads a device.
    ///
    /// # Errors
    /// [`PortError::BadDevice`] with what is wrong. Whether the device exists is not looked at.
    pub fn parse(text: &str) -> Result<Device, PortError> {
        let bad = |why: &str| PortError::BadDevice { device: text.into(), why: why.into() };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if text.bytes().any(|byte| byte.is_ascii_whitespace() || byte == 0) {
            return Err(bad("devices have no blanks in their names"));
        }
        if is_pci(text.split(',').next().unwrap_or_default()) {
            return Ok(Device::Pci(full_pci(text)));
        }
        let Some((kind, rest)) = text.split_once(':') else { return interface(text).map(Device::Interface) };
        match kind {
            "af_xdp" => interface(rest).map(Device::AfXdp),
            "af_packet" => interface(rest).map(Device::AfPacket),
            "memif" => memif(rest).map_err(|why| bad(&why)).map(Device::Memif),
            "dpdk" | "pci" if is_pci(rest.split(',').next().unwrap_or_default()) => {
                Ok(Device::Pci(full_pci(rest)))
            }
            "dpdk" if rest.is_empty() => {
                Err(bad("a DPDK device follows 'dpdk:', for instance dpdk:net_null0"))
            }
            "dpdk" => Ok(Device::Dpdk(rest.into())),
            _ => Err(bad(&format!(
                "'{kind}:' is none of af_xdp: af_packet: memif: dpdk:, and it is no PCI address such as 0000:01:00.0"
            ))),
        }
    }

    /// The kernel interface behind it.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Device::Interface(name) | Device::AfXdp(name) | Device::AfPacket(name) => Some(name),
            _ => None,
        }
    }

    /// What two ports must not share: the interface, the PCI address, the DPDK name.
    pub fn key(&self) -> String {
        match self {
            Device::Interface(name) | Device::AfXdp(name) | Device::AfPacket(name) => {
                format!("interface {name}")
            }
            Device::Pci(text) | Device::Dpdk(text) => {
                format!("device {}", text.split(',').next().unwrap_or_default())
            }
            Device::Memif(memif) => {
                let id = memif.options.iter().find_map(|option| option.strip_prefix("id=")).unwrap_or("0");
                format!("memif {} id={id} role={}", memif.path, memif.role())
            }
        }
    }
}

impl Memif {
    /// `server` or `client`.
    pub fn role(&self) -> &'static str {
        if self.server { "server" } else { "client" }
    }

    /// The device string for DPDK, with a number that no other memif of this process has.
    pub fn devargs(&self, number: usize) -> String {
        let mut devargs =
            format!("net_memif{number},role={},socket={},socket-abstract=no", self.role(), self.path);
        for option in &self.options {
            devargs.push(',');
            devargs.push_str(option);
        }
        devargs
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Interface(name) | Device::Pci(name) => f.write_str(name),
            Device::AfXdp(name) => write!(f, "af_xdp:{name}"),
            Device::AfPacket(name) => write!(f, "af_packet:{name}"),
            Device::Dpdk(devargs) => write!(f, "dpdk:{devargs}"),
            Device::Memif(memif) => {
                write!(f, "memif:{},role={}", memif.path, memif.role())?;
                memif.options.iter().try_for_each(|option| write!(f, ",{option}"))
            }
        }
    }
}

/// A kernel interface's name, by the kernel's rules.
fn interface(name: &str) -> Result<String, PortError> {
    let bad = |why: &str| PortError::BadDevice { device: name.into(), why: why.into() };
    if name.is_empty() {
        return Err(bad("the name of an interface is missing"));
    }
    if name.len() >= libc::IFNAMSIZ {
        return Err(bad("names of interfaces have at most 15 characters"));
    }
    if name.contains(['/', ',']) {
        return Err(bad("names of interfaces have no '/' and no ','"));
    }
    Ok(name.into())
}

fn memif(text: &str) -> Result<Memif, String> {
    let mut words = text.split(',');
    let path = words.next().unwrap_or_default();
    if path.is_empty() || path.contains('=') {
        return Err(
            "memif: begins with the path of a socket, as in memif:/run/x.sock,id=0,role=client".into()
        );
    }
    if path.len() > 107 {
        return Err("the path of a socket has at most 107 bytes".into());
    }
    let mut memif = Memif { path: path.into(), server: false, options: Vec::new() };
    for word in words {
        match word.split_once('=') {
            Some(("role", "server")) => memif.server = true,
            Some(("role", "client")) => memif.server = false,
            Some(("role", other)) => return Err(format!("role is server or client, not '{other}'")),
            Some(("id", id)) if id.parse::<u32>().is_err() => {
                return Err(format!("id is a number, not '{id}'"));
            }
            Some(("socket" | "socket-abstract", _)) => {
                return Err("the socket is the path behind 'memif:'".into());
            }
            Some(("id" | "bsize" | "rsize" | "mac" | "secret" | "zero-copy", _)) => {
                memif.options.push(word.into())
            }
            _ => {
                let known = "id, role, bsize, rsize, mac, secret and zero-copy, each with '=' and a value";
                return Err(format!("'{word}' is no option of a memif; there are {known}"));
            }
        }
    }
    Ok(memif)
}

/// `[0000:]01:00.0`
fn is_pci(text: &str) -> bool {
    let hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((bus, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = bus.split(':').collect();
    let function_fits = function.len() == 1 && matches!(function.as_bytes()[0], b'0'..=b'7');
    function_fits
        && match parts.as_slice() {
            [domain, bus, device] => hex(domain, 4) && hex(bus, 2) && hex(device, 2),
            [bus, device] => hex(bus, 2) && hex(device, 2),
            _ => false,
        }
}

fn full_pci(text: &str) -> String {
    let address = text.split(',').next().unwrap_or_default();
    if address.split(':').count() == 2 { format!("0000:{text}") } else { text.to_owned() }
}

/// The known name that is most like a wrong one, if any is like it at all.
pub fn nearest<'a>(wrong: &str, known: &'a [String]) -> Option<&'a str> {
    let bound = (wrong.chars().count() / 2).clamp(1, 3);
    let scored = known.iter().map(|name| (distance(wrong, name), name.as_str()));
    scored.filter(|&(far, _)| far <= bound).min().map(|(_, name)| name)
}

/// Edit distance where two letters swapped count once (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    rows[i - 2][j - 2] + 1
                } else {
                    usize::MAX
                };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Device {
        Device::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refused(text: &str) -> String {
        Device::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn every_form_is_read_and_printed() {
        for text in
            ["eth0", "af_xdp:eth0", "af_packet:veth-x", "dpdk:net_null0", "dpdk:net_pcap0,rx_pcap=/a.pcap"]
        {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("eth0"), Device::Interface("eth0".into()));
        assert_eq!(parse("eth0.5"), Device::Interface("eth0.5".into()));
        assert_eq!(
            parse("memif:/run/m.sock,id=3,role=server").to_string(),
            "memif:/run/m.sock,role=server,id=3"
        );
    }

    #[test]
    fn pci_addresses_are_told_from_names() {
        for text in ["0000:01:00.0", "01:00.0", "dpdk:0000:01:00.0", "pci:0000:01:00.0"] {
            assert_eq!(parse(text), Device::Pci("0000:01:00.0".into()), "{text}");
        }
        assert_eq!(parse("0000:01:00.1,rep=1"), Device::Pci("0000:01:00.1,rep=1".into()));
        assert!(refused("0000:01:00.8").contains("no PCI address"));
    }

    #[test]
    fn a_memif_becomes_a_device_of_dpdk() {
        let Device::Memif(memif) = parse("memif:/run/m.sock,id=3,role=server") else { panic!() };
        assert_eq!(memif.devargs(1), "net_memif1,role=server,socket=/run/m.sock,socket-abstract=no,id=3");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refused("").contains("empty"));
        assert!(refused("eth0 eth1").contains("blanks"));
        assert!(refused("a-name-that-is-too-long").contains("15 characters"));
        assert!(refused("memif:id=1").contains("path of a socket"));
        assert!(refused("memif:/x,role=master").contains("server or client"));
        assert!(refused("memif:/x,id=one").contains("number"));
        assert!(refused("memif:/x,color=red").contains("no option"));
        assert!(refused("dpdk:").contains("net_null0"));
        assert!(refused("usb:1").contains("none of"));
    }

    #[test]
    fn one_interface_is_one_device_however_written() {
        assert_eq!(parse("eth0").key(), parse("af_packet:eth0").key());
        assert_ne!(parse("memif:/x,role=server").key(), parse("memif:/x,role=client").key());
    }

    #[test]
    fn the_nearest_name_is_found() {
        let known: Vec<String> = ["lo", "eth0", "veth-a"].map(str::to_owned).into();
        assert_eq!(nearest("eht0", &known), Some("eth0"));
        assert_eq!(nearest("vetha", &known), Some("veth-a"));
        assert_eq!(nearest("wlan0", &known), None);
    }
}
