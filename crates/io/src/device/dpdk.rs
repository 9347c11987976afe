//! Any device of DPDK, by its device string.

use super::eth::EthDriver;
use super::kind::{DeviceForm, DeviceKind, Opening, bad, behind};
use super::pci::is_pci;
use crate::driver::PortDriver;
use crate::error::PortError;
use crate::kernel::KernelInterface;
use std::fmt;

/// The advice if a device cannot be added.
const REMEDY: &str = "a device of DPDK is a driver and a number, for instance net_null0, and its arguments; drivers come with \
                      the packages librte-net-*";

/// A device string of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkDevice(String);

impl DeviceKind for DpdkDevice {
    fn form() -> DeviceForm {
        DeviceForm { prefix: Some("dpdk"), usage: Some("dpdk:DEVARGS"), example: "dpdk:net_tap0,iface=tap0" }
    }

    fn parse(text: &str) -> Option<Result<DpdkDevice, PortError>> {
        let devargs = behind("dpdk", text).filter(|devargs| !is_pci(devargs))?;
        if devargs.is_empty() {
            return Some(Err(bad(text, "a DPDK device follows 'dpdk:', for instance dpdk:net_null0")));
        }
        Some(Ok(DpdkDevice(devargs.into())))
    }

    fn key(&self) -> String {
        format!("device {}", self.0.split(',').next().unwrap_or_default())
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

impl fmt::Display for DpdkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dpdk:{}", self.0)
    }
}
