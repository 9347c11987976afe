//! What XDP can do with an interface, as the kernel tells by generic netlink.

use crate::netlink::{ask, attribute, attribute_bytes, kind_of, message, open};

/// Of generic netlink: the controller, its command that looks up a family, and the attributes with the family's number and name.
const GENERIC_CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Of the family `netdev` (kernel documentation `netlink/specs/netdev.yaml`): the command that looks up a device, its number, what XDP can do
/// with it, and the bit of frames that other drivers redirect to it.
const GET_DEVICE: u8 = 1;
const DEVICE_IFINDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const NDO_XMIT: u64 = 4;

/// Whether the device of that number now takes frames that other drivers redirect to it. No kernel before Linux 6.3 tells.
pub(crate) fn takes_xdp_frames(interface: u32) -> bool {
    xdp_features(interface).is_some_and(|features| features & NDO_XMIT != 0)
}

fn xdp_features(interface: u32) -> Option<u64> {
    let socket = open(libc::NETLINK_GENERIC).ok()?;
    let family = generic_request(GENERIC_CONTROLLER, GET_FAMILY, &attribute_bytes(FAMILY_NAME, b"netdev\0"));
    let answer = ask(&socket, &family).ok()?;
    if kind_of(&answer)? != GENERIC_CONTROLLER {
        return None;
    }
    let family = u16::from_ne_bytes(*attribute(answer.get(20..)?, FAMILY_ID)?.first_chunk()?);
    let device = attribute_bytes(DEVICE_IFINDEX, &interface.to_ne_bytes());
    let answer = ask(&socket, &generic_request(family, GET_DEVICE, &device)).ok()?;
    if kind_of(&answer)? != family {
        return None;
    }
    Some(u64::from_ne_bytes(*attribute(answer.get(20..)?, DEVICE_XDP_FEATURES)?.first_chunk()?))
}

/// A message of generic netlink, with attributes.
fn generic_request(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    // struct genlmsghdr: command, version, reserved.
    message(family, libc::NLM_F_REQUEST, &[&[command, 1, 0, 0], attributes].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_xdp_can_do_with_an_interface() {
        let lo = crate::kernel::KernelInterface::find("lo").expect("every namespace has one");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
        let version: (u32, u32) = (numbers.next().expect("a number"), numbers.next().unwrap_or_default());
        let expected = (version >= (6, 3)).then_some(0);
        assert_eq!(xdp_features(lo.index() as u32), expected, "the loopback device can do nothing");
        assert!(!takes_xdp_frames(u32::MAX >> 1), "there is no such interface");
    }
}
