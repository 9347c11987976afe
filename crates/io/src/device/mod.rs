//! Devices as users write them: `--port NAME=DEVICE`. Each kind is a row of `device_kinds!` and a file, which implements
//! `DeviceKind` (kind.rs).

mod af_packet;
mod af_xdp;
mod dpdk;
mod eth;
pub(crate) mod kind;
mod memif;
mod name;
mod pci;

use crate::error::PortError;
use af_packet::PacketInterface;
use af_xdp::{PlainInterface, XdpInterface};
use dpdk::DpdkDevice;
pub use kind::DeviceForm;
use kind::{DeviceKind, bad};
pub use memif::Memif;
use pci::PciDevice;
use std::fmt;

macro_rules! device_kinds {
    ($($(#[$doc:meta])* $name:ident($kind:ty),)*) => {
        /// The device of a port.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Device {
            $($(#[$doc])* $name($kind),)*
        }

        impl Device {
            /// The kinds of devices: the name of each one's variant, and how it is written.
            pub fn forms() -> Vec<(&'static str, DeviceForm)> {
                vec![$((stringify!($name), <$kind>::form()),)*]
            }

            fn parse_kind(text: &str) -> Option<Result<Device, PortError>> {
                $(if let Some(parsed) = <$kind>::parse(text) {
                    return Some(parsed.map(Device::$name));
                })*
                None
            }

            pub(crate) fn kind(&self) -> &dyn DeviceKind {
                match self {
                    $(Device::$name(kind) => kind,)*
                }
            }

            #[cfg(test)]
            fn kind_name(&self) -> &'static str {
                match self {
                    $(Device::$name(_) => stringify!($name),)*
                }
            }
        }
    };
}

device_kinds! {
    /// A kernel interface, by the best means that works: `eth0`.
    Interface(PlainInterface),
    /// The same with a prefix: `af_xdp:eth0`.
    AfXdp(XdpInterface),
    /// A kernel interface through AF_PACKET: `af_packet:eth0`.
    AfPacket(PacketInterface),
    /// A PCI device: `0000:01:00.0`, with device arguments behind a comma if any.
    Pci(PciDevice),
    /// Shared memory with another process: `memif:/run/x.sock,id=0,role=server`.
    Memif(Memif),
    /// Any device of DPDK: `dpdk:net_null0`.
    Dpdk(DpdkDevice),
}

impl Device {
    /// Parses a device.
    ///
    /// # Errors
    /// [`PortError::BadDevice`] with the error in the text. Existence is not checked.
    pub fn parse(text: &str) -> Result<Device, PortError> {
        if text.is_empty() {
            return Err(bad(text, "it is empty"));
        }
        if text.bytes().any(|byte| byte.is_ascii_whitespace() || byte == 0) {
            return Err(bad(text, "devices have no blanks in their names"));
        }
        Device::parse_kind(text).unwrap_or_else(|| {
            let prefixes: Vec<String> =
                Device::forms().iter().filter_map(|(_, form)| Some(format!("{}:", form.prefix?))).collect();
            let kind = text.split(':').next().unwrap_or_default();
            Err(bad(
                text,
                &format!(
                    "'{kind}:' is none of {}, and it is no PCI address such as 0000:01:00.0",
                    prefixes.join(" ")
                ),
            ))
        })
    }

    /// The forms of devices in one line, for help texts.
    pub fn usage() -> String {
        let forms: Vec<&str> = Device::forms().iter().filter_map(|(_, form)| form.usage).collect();
        match forms.split_last() {
            Some((last, first)) if !first.is_empty() => format!("{}, or {last}", first.join(", ")),
            _ => forms.concat(),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.kind(), f)
    }
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
        assert!(matches!(parse("eth0.5"), Device::Interface(_)));
        assert_eq!(
            parse("memif:/run/m.sock,id=3,role=server").to_string(),
            "memif:/run/m.sock,role=server,id=3"
        );
    }

    #[test]
    fn pci_addresses_are_told_from_names() {
        for text in ["0000:01:00.0", "01:00.0", "dpdk:0000:01:00.0", "pci:0000:01:00.0"] {
            assert!(matches!(parse(text), Device::Pci(_)), "{text}");
            assert_eq!(parse(text).to_string(), "0000:01:00.0", "{text}");
        }
        assert_eq!(parse("0000:01:00.1,rep=1").to_string(), "0000:01:00.1,rep=1");
        assert!(refused("0000:01:00.8").contains("no PCI address"));
    }

    #[test]
    fn a_memif_becomes_a_device_of_dpdk() {
        let Device::Memif(memif) = parse("memif:/run/m.sock,id=3,role=server") else { panic!() };
        assert_eq!(memif.devargs(1), "net_memif1,role=server,socket=/run/m.sock,socket-abstract=no,id=3");
    }

    #[test]
    fn every_kind_reads_its_example_which_the_documents_have() {
        let table = include_str!("../../../../docs/operations.md");
        for (name, form) in Device::forms() {
            let device = parse(form.example);
            assert_eq!(device.kind_name(), name, "{}", form.example);
            assert!(table.contains(&format!("| `{}` |", form.example)), "docs/operations.md lacks {name}");
        }
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
        assert_eq!(parse("eth0").kind().key(), parse("af_packet:eth0").kind().key());
        assert_ne!(parse("memif:/x,role=server").kind().key(), parse("memif:/x,role=client").kind().key());
    }
}
