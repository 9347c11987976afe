//! Kernel interfaces through AF_XDP, or AF_PACKET where that is better or AF_XDP does not work: `eth0`, `af_xdp:eth0`.

use super::af_packet::open_sockets;
use super::eth::EthDriver;
use super::kind::{DeviceForm, DeviceKind, Opening, behind};
use super::name::interface_name;
use crate::dpdk::EthPort;
use crate::driver::PortDriver;
use crate::error::PortError;
use crate::kernel::KernelInterface;
use crate::pools::DESCRIPTORS;
use crate::{wait, xdp};
use std::fmt;
use std::sync::Mutex;

/// A kernel interface by its name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainInterface(String);

/// The same with a prefix, for scripts that say what they expect. It falls back as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpInterface(String);

impl DeviceKind for PlainInterface {
    fn form() -> DeviceForm {
        DeviceForm { prefix: None, usage: Some("a kernel interface"), example: "eth1" }
    }

    fn parse(text: &str) -> Option<Result<PlainInterface, PortError>> {
        (!text.contains(':')).then(|| interface_name(text).map(PlainInterface))
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
        open_plain(opening, interface)
    }
}

impl DeviceKind for XdpInterface {
    fn form() -> DeviceForm {
        DeviceForm { prefix: Some("af_xdp"), usage: None, example: "af_xdp:eth1" }
    }

    fn parse(text: &str) -> Option<Result<XdpInterface, PortError>> {
        Some(interface_name(behind("af_xdp", text)?).map(XdpInterface))
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
        open_best(opening, interface)
    }
}

/// Drivers of fast cards that hand frames to AF_XDP without a copy. For other interfaces AF_PACKET is chosen: its superframes, and flows that the kernel
/// forwards, gain more than AF_XDP does.
const WITHOUT_COPY: [&str; 6] = ["i40e", "ice", "ixgbe", "igb", "igc", "mlx5_core"];

/// Opens an interface through AF_PACKET, if flows may be forwarded and its driver does not favour AF_XDP.
fn open_plain(
    opening: &mut Opening<'_>,
    interface: Option<&KernelInterface>,
) -> Result<Box<dyn PortDriver>, PortError> {
    match interface {
        Some(interface)
            if opening.flows.is_some() && !WITHOUT_COPY.contains(&interface.driver().as_str()) =>
        {
            open_sockets(opening, interface)
        }
        _ => open_best(opening, interface),
    }
}

/// Opens an interface through AF_XDP, or else through AF_PACKET with a note.
fn open_best(
    opening: &mut Opening<'_>,
    interface: Option<&KernelInterface>,
) -> Result<Box<dyn PortDriver>, PortError> {
    let interface = interface.unwrap_or_else(|| unreachable!("an interface stands behind it"));
    match open_xdp(opening, interface) {
        Ok(driver) => Ok(Box::new(driver)),
        Err(why) => {
            let name = opening.name;
            opening.notes.push(format!("port {name}: using AF_PACKET, since AF_XDP does not work: {why}"));
            open_sockets(opening, interface)
        }
    }
}

/// # Errors
/// The reason for which AF_XDP does not work, in words.
fn open_xdp(opening: &mut Opening<'_>, interface: &KernelInterface) -> Result<EthDriver, String> {
    let pool = opening.pools.for_mtu(opening.mtu);
    if !pool.fits_xdp() {
        return Err(format!("an MTU of {} does not fit in its buffers", opening.mtu));
    }
    xdp::permitted()?;
    let queues = xdp::queues(interface)?;
    let tags = xdp::VlanTagHandling::keep(interface)?;
    let words = |error: PortError| error.to_string();
    let devargs = format!("net_af_xdp{},iface={},queue_count={queues}", opening.number, interface.name());
    let before = wait::xdp_sockets();
    let mut port = EthPort::attach(opening.eal, &devargs).map_err(words)?;
    port.start(queues, DESCRIPTORS, opening.mtu as u16, pool).map_err(words)?;
    let sockets: Vec<_> = wait::xdp_sockets().into_iter().filter(|fd| !before.contains(fd)).collect();
    let queues_of_flows =
        opening.flows.as_deref_mut().map(|flows| flows.frame_queues(interface.name())).transpose()?;
    let (guard, why) = xdp::InterfaceGuard::new(interface, tags, &sockets, opening.flows.as_deref())?;
    if let Some(why) = why {
        let name = opening.name;
        opening
            .notes
            .push(format!("port {name}: workers see every packet, since flow offload does not work: {why}"));
    }
    if guard.forwards_flows() && interface.driver() == "veth" {
        let (name, device) = (opening.name, interface.name());
        opening.notes.push(format!(
            "port {name}: {device} is a veth: flows are forwarded in its driver only if hosts behind it finish checksums themselves (`ethtool -K eth0 tx off gro on`); AF_PACKET needs no such setting ({name}={device})"
        ));
    }
    let flows = queues_of_flows.filter(|_| guard.forwards_flows()).unwrap_or_default();
    let flows = Mutex::new(flows.into_iter().map(Some).collect());
    opening.note_queues(queues);
    Ok(EthDriver { port, queues, sockets, guard: Some(guard), flows })
}

impl fmt::Display for PlainInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for XdpInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "af_xdp:{}", self.0)
    }
}
