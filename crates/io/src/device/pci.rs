//! Network cards by PCI address.

use super::eth::EthDriver;
use super::kind::{DeviceForm, DeviceKind, Opening, behind};
use crate::driver::PortDriver;
use crate::error::PortError;
use crate::kernel::KernelInterface;
use std::fmt;

/// The advice if a card cannot be added.
const REMEDY: &str = "see that it exists (lspci) and is bound to vfio-pci or to a driver that DPDK shares with the kernel \
                      (dpdk-devbind.py --status)";

/// A PCI address with its domain, and device arguments behind a comma if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice(String);

impl DeviceKind for PciDevice {
    fn form() -> DeviceForm {
        DeviceForm { prefix: None, usage: Some("a PCI address"), example: "0000:03:00.0" }
    }

    fn parse(text: &str) -> Option<Result<PciDevice, PortError>> {
        let text = ["dpdk", "pci"].iter().find_map(|prefix| behind(prefix, text)).unwrap_or(text);
        is_pci(text).then(|| Ok(PciDevice(full_pci(text))))
    }

    fn key(&self) -> String {
        format!("device {}", address(&self.0))
    }

    fn pci(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn open(
        &self,
        opening: &mut Opening<'_>,
        _interface: Option<&KernelInterface>,
    ) -> Result<Box<dyn PortDriver>, PortError> {
        let (port, queues) = opening.eth(self, &self.0, REMEDY)?;
        Ok(Box::new(EthDriver::new(port, queues)))
    }
}

impl fmt::Display for PciDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn address(text: &str) -> &str {
    text.split(',').next().unwrap_or_default()
}

/// True for `[0000:]01:00.0`, with device arguments or without.
pub(crate) fn is_pci(text: &str) -> bool {
    let text = address(text);
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
    if address(text).split(':').count() == 2 { format!("0000:{text}") } else { text.to_owned() }
}
