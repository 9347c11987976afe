//! The contract of a kind of device.

use crate::dpdk::{Eal, EthPort};
use crate::driver::PortDriver;
use crate::error::PortError;
use crate::flows::FlowPrograms;
use crate::kernel::KernelInterface;
use crate::pools::MbufPools;
use std::fmt;

/// The form in which a kind of device is written.
#[derive(Clone, Copy, Debug)]
pub struct DeviceForm {
    /// The word in front of the colon, if the kind has one.
    pub prefix: Option<&'static str>,
    /// The form in the help of `--port`; `None` if the help does not name the kind.
    pub usage: Option<&'static str>,
    /// The example in the table of docs/operations.md.
    pub example: &'static str,
}

/// A kind of device: a row of `device_kinds!` names the type that implements it.
pub(crate) trait DeviceKind: fmt::Debug + fmt::Display {
    /// The form in which it is written.
    fn form() -> DeviceForm
    where
        Self: Sized;

    /// Parses a device; `None` if the text is not of this kind. Two kinds never take the same text.
    fn parse(text: &str) -> Option<Result<Self, PortError>>
    where
        Self: Sized;

    /// The key that two ports must not share: the interface, the PCI address, the DPDK name.
    fn key(&self) -> String;

    /// The kernel interface behind it.
    fn interface(&self) -> Option<&str> {
        None
    }

    /// Its PCI address, with device arguments behind a comma if any.
    fn pci(&self) -> Option<&str> {
        None
    }

    /// Prepares it before DPDK starts.
    ///
    /// # Errors
    /// It cannot be used.
    fn prepare(&self) -> Result<(), PortError> {
        Ok(())
    }

    /// Opens it. `interface` is the kernel interface behind it, if there is one.
    ///
    /// # Errors
    /// It cannot be used.
    fn open(
        &self,
        opening: &mut Opening<'_>,
        interface: Option<&KernelInterface>,
    ) -> Result<Box<dyn PortDriver>, PortError>;
}

/// The context in which a port is opened.
pub(crate) struct Opening<'a> {
    pub(crate) eal: &'a Eal,
    pub(crate) pools: &'a MbufPools,
    /// Packet threads.
    pub(crate) workers: u16,
    /// The port's name in rules.
    pub(crate) name: &'a str,
    /// The port's number, which is unique in the process.
    pub(crate) number: usize,
    pub(crate) mtu: u32,
    /// The programs that forward flows, if packets of kernel interfaces may pass them.
    pub(crate) flows: Option<&'a mut FlowPrograms>,
    /// Messages for the user.
    pub(crate) notes: &'a mut Vec<String>,
}

impl Opening<'_> {
    /// Adds a note if a device has fewer queues than there are workers.
    pub(crate) fn note_queues(&mut self, queues: u16) {
        let (name, workers) = (self.name, self.workers);
        if queues < workers {
            let queues = if queues == 1 { "one queue".into() } else { format!("{queues} queues") };
            self.notes.push(format!(
                "port {name}: its device has {queues} for {workers} workers, so that not all of them receive from it"
            ));
        }
    }

    /// Adds a device to DPDK and starts it. `remedy` says what may help if it cannot be added.
    ///
    /// # Errors
    /// A refusal by DPDK.
    pub(crate) fn eth(
        &mut self,
        device: &dyn fmt::Display,
        devargs: &str,
        remedy: &'static str,
    ) -> Result<(EthPort, u16), PortError> {
        let with_remedy = |error| match error {
            PortError::Dpdk { .. } => {
                PortError::Device { device: device.to_string(), why: format!("{error}"), remedy }
            }
            error => error,
        };
        let mut port = EthPort::attach(self.eal, devargs).map_err(with_remedy)?;
        let queues = self.workers.min(port.info()?.max_queues).max(1);
        port.start(queues, crate::pools::DESCRIPTORS, self.mtu as u16, self.pools.for_mtu(self.mtu))?;
        port.promiscuous();
        self.note_queues(queues);
        Ok((port, queues))
    }
}

/// The text behind a prefix and a colon.
pub(crate) fn behind<'t>(prefix: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(prefix)?.strip_prefix(':')
}

/// An error of [`DeviceKind::parse`].
pub(crate) fn bad(device: &str, why: &str) -> PortError {
    PortError::BadDevice { device: device.into(), why: why.into() }
}
