//! Kernel interfaces through AF_PACKET: `af_packet:eth0`.

use super::kind::{DeviceForm, DeviceKind, Opening, behind};
use super::name::interface_name;
use crate::dpdk::{DeviceInfo, DeviceStats};
use crate::driver::{PortDriver, WorkerQueues};
use crate::error::PortError;
use crate::flows::FlowHook;
use crate::kernel::{KernelInterface, MAX_MTU};
use crate::link::{ReceiveQueues, SendQueues};
use crate::packet::{DRIVER, PacketPort};
use std::fmt;

/// A kernel interface through AF_PACKET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketInterface(String);

/// Its sockets.
#[derive(Debug)]
struct PacketDriver {
    port: PacketPort,
    mac: [u8; 6],
    workers: u16,
}

impl DeviceKind for PacketInterface {
    fn form() -> DeviceForm {
        DeviceForm { prefix: Some("af_packet"), usage: None, example: "af_packet:eth1" }
    }

    fn parse(text: &str) -> Option<Result<PacketInterface, PortError>> {
        Some(interface_name(behind("af_packet", text)?).map(PacketInterface))
    }

    fn key(&self) -> String {
        format!("interface {}", self.0)
    }

    fn interface(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn open(
        &self,
        opening: &mut Opening<'_>,
        interface: Option<&KernelInterface>,
    ) -> Result<Box<dyn PortDriver>, PortError> {
        let interface = interface.unwrap_or_else(|| unreachable!("an interface stands behind it"));
        open_sockets(opening, interface)
    }
}

/// Opens packet sockets on an interface, with the programs that forward flows if there are some.
///
/// # Errors
/// A refusal by the kernel.
pub(crate) fn open_sockets(
    opening: &mut Opening<'_>,
    interface: &KernelInterface,
) -> Result<Box<dyn PortDriver>, PortError> {
    let pool = opening.pools.for_mtu(opening.mtu);
    let port = match opening.flows.as_deref_mut() {
        None => PacketPort::open(interface, opening.workers, opening.mtu, pool, None)?,
        // Without sockets, the program leaves packets to the kernel: it is attached first, so that no packet gets past it.
        Some(flows) => match flows.attach(interface) {
            Ok(attachment) => {
                PacketPort::open(interface, opening.workers, opening.mtu, pool, Some((flows, attachment)))?
            }
            Err(why) => {
                let name = opening.name;
                opening.notes.push(format!(
                    "port {name}: workers see every packet, since flow offload does not work: {why}"
                ));
                PacketPort::open(interface, opening.workers, opening.mtu, pool, None)?
            }
        },
    };
    Ok(Box::new(PacketDriver { port, mac: interface.mac().unwrap_or_default(), workers: opening.workers }))
}

impl PortDriver for PacketDriver {
    fn info(&self) -> Result<DeviceInfo, PortError> {
        Ok(DeviceInfo {
            driver: DRIVER.into(),
            mac: self.mac,
            max_queues: self.workers,
            max_mtu: MAX_MTU,
            link: true,
        })
    }

    fn flow_hook(&self) -> Option<FlowHook> {
        self.port.flow_hook()
    }

    fn stats(&self, _gone: bool) -> DeviceStats {
        DeviceStats { rx_missed: self.port.missed(), ..DeviceStats::default() }
    }

    fn queues(&self, workers: u16) -> Result<Vec<WorkerQueues>, PortError> {
        let of_worker = |worker| {
            Ok(WorkerQueues {
                receive: ReceiveQueues::Packet(Box::new(self.port.receiver(worker))),
                send: SendQueues::Packet(Box::new(self.port.sender()?)),
                descriptors: vec![self.port.descriptor(worker)],
            })
        };
        (0..workers).map(of_worker).collect()
    }
}

impl fmt::Display for PacketInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "af_packet:{}", self.0)
    }
}
