//! What AF_XDP needs of an interface before it shows every frame as it was on the wire.

use crate::kernel::Interface;

/// Devices on top of others: VLAN tags are taken out of frames below them, where they cannot be told not to.
const STACKED: [&str; 6] = ["macvlan", "ipvlan", "bridge", "bonding", "team", "802.1Q VLAN Support"];

/// How many queues AF_XDP has to serve for no frame to pass it by.
///
/// # Errors
/// Why it cannot, in words.
pub(crate) fn queues(interface: &Interface) -> Result<u16, String> {
    let channels = interface.channels();
    // The driver of DPDK serves combined queues only, or else the first one.
    if channels.receive > 1 || (channels.receive > 0 && channels.combined > 0) {
        return Err(format!(
            "it cannot serve {} receive queues beside {} combined ones",
            channels.receive, channels.combined
        ));
    }
    Ok(channels.combined.clamp(1, 64) as u16)
}

/// Sees to it that VLAN tags stay in the frames. True if the interface had to be told.
///
/// # Errors
/// Why they do not, in words.
pub(crate) fn keep_tags(interface: &Interface) -> Result<bool, String> {
    let driver = interface.driver();
    if STACKED.contains(&driver.as_str()) {
        return Err(format!(
            "a device of kind '{driver}' hands VLAN tags over beside the frame, where it does not see them"
        ));
    }
    if driver == "veth" || !interface.strips_vlan() {
        return Ok(false);
    }
    if interface.set_strips_vlan(false) {
        Ok(true)
    } else {
        Err("the device hands VLAN tags over beside the frame, where it does not see them".into())
    }
}
