//! Messages to and from the kernel (netlink): sockets and attributes for all of them, and those about interfaces: hearing of changes, looking up the master of an interface, and taking an XDP program off one.
#![allow(unsafe_code)]

use crate::error::PortError;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const IFLA_MASTER: u16 = 10;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const NESTED: u16 = 1 << 15;

/// The bytes of the header of a message (`struct nlmsghdr`).
const HEADER: usize = 16;

/// Receives changes of the interfaces of the network namespace.
#[derive(Debug)]
pub struct LinkWatch(OwnedFd);

impl LinkWatch {
    /// Starts to listen.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub fn new() -> Result<LinkWatch, PortError> {
        let listen = || {
            let socket = open(libc::NETLINK_ROUTE)?;
            // SAFETY: all zeros is a valid value of this plain structure; address and size are those of one.
            let result = unsafe {
                let mut address: libc::sockaddr_nl = std::mem::zeroed();
                address.nl_family = libc::AF_NETLINK as u16;
                address.nl_groups = libc::RTMGRP_LINK as u32;
                let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
                libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size)
            };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(LinkWatch(socket)) }
        };
        listen().map_err(|_| PortError::system("listening for changes of interfaces"))
    }

    /// Waits until something changed. What it was is to be looked up: the kernel may have left messages out.
    pub fn wait(&self) {
        let mut message = [0u8; 8192];
        // SAFETY: memory of the length given.
        unsafe { libc::recv(self.0.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0) };
    }
}

/// The number of the bridge or bond that the interface of that number is a member of.
pub(crate) fn master(interface: i32) -> Option<u32> {
    let socket = open(libc::NETLINK_ROUTE).ok()?;
    let answer = ask(&socket, &link_request(libc::RTM_GETLINK, libc::NLM_F_REQUEST, interface, &[])).ok()?;
    let value = if kind_of(&answer)? == libc::RTM_NEWLINK {
        attribute(answer.get(32..)?, IFLA_MASTER)?
    } else {
        return None;
    };
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// Sends a request, and receives the first datagram of the answer, which begins with a message.
pub(crate) fn ask(socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
    send(socket, request)?;
    receive(socket)
}

/// Sends a request for a list (`NLM_F_DUMP`), and calls `visit` with each message of the answer.
pub(crate) fn list(socket: &OwnedFd, request: &[u8], mut visit: impl FnMut(&[u8])) -> io::Result<()> {
    send(socket, request)?;
    loop {
        let datagram = receive(socket)?;
        if split_message(&datagram).is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &datagram[..];
        while let Some((message, later)) = split_message(rest) {
            match kind_of(message).map(libc::c_int::from) {
                Some(libc::NLMSG_DONE | libc::NLMSG_ERROR) => return code_of(message),
                _ => visit(message),
            }
            rest = later;
        }
    }
}

fn send(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    // SAFETY: memory of the length given.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a datagram. The kernel cuts lists into datagrams of at most 32 KiB, or of a smaller buffer.
fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut datagram = vec![0u8; 1 << 15];
    // SAFETY: memory of the length given.
    let got = unsafe { libc::recv(socket.as_raw_fd(), datagram.as_mut_ptr().cast(), datagram.len(), 0) };
    datagram.truncate(usize::try_from(got).map_err(|_| io::Error::last_os_error())?);
    Ok(datagram)
}

/// Splits off the first message of a datagram. `None` if it holds no whole message.
fn split_message(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
    let message = datagram.get(..length).filter(|message| message.len() >= HEADER)?;
    Some((message, datagram.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The result in a message that ends an answer: after the header a negated errno value or 0.
fn code_of(message: &[u8]) -> io::Result<()> {
    match message.get(HEADER..).and_then(|rest| rest.first_chunk()) {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(&code) if i32::from_ne_bytes(code) != 0 => {
            Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code)))
        }
        Some(_) => Ok(()),
    }
}

/// The type of a message.
pub(crate) fn kind_of(message: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*message.get(4..)?.first_chunk()?))
}

/// The value of the attribute of that kind among the attributes of a message.
pub(crate) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*attributes.first_chunk()?));
        let kind = u16::from_ne_bytes(*attributes.get(2..)?.first_chunk()?);
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// Removes the XDP program from the interface of that number.
pub(crate) fn detach_xdp(interface: i32) -> io::Result<()> {
    code_of(&ask(&open(libc::NETLINK_ROUTE)?, &detach_request(interface))?)
}

/// A socket of a netlink protocol.
pub(crate) fn open(protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor, which then belongs to the value alone.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// An attribute of a message, with padding behind it.
pub(crate) fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// "Set link": the interface shall have the program with descriptor -1, which is none.
fn detach_request(interface: i32) -> Vec<u8> {
    let xdp = attribute_bytes(IFLA_XDP | NESTED, &attribute_bytes(IFLA_XDP_FD, &(-1i32).to_ne_bytes()));
    link_request(libc::RTM_SETLINK, libc::NLM_F_REQUEST | libc::NLM_F_ACK, interface, &xdp)
}

/// A message about the interface of that number, with attributes.
fn link_request(kind: u16, flags: libc::c_int, interface: i32, attributes: &[u8]) -> Vec<u8> {
    // struct ifinfomsg: family, padding, type, index, flags, change.
    let mut link = vec![0; 4];
    link.extend(interface.to_ne_bytes());
    link.extend([0; 8]);
    link.extend(attributes);
    message(kind, flags, &link)
}

/// A message: its header, then the content.
pub(crate) fn message(kind: u16, flags: libc::c_int, content: &[u8]) -> Vec<u8> {
    // struct nlmsghdr: length, type, flags, sequence number, sender.
    let mut bytes = ((HEADER + content.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags as u16).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_says_how_long_it_is() {
        let bytes = detach_request(7);
        assert_eq!(bytes.len(), 16 + 16 + 12);
        assert_eq!(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize, bytes.len());
        assert_eq!(bytes[20..24], 7i32.to_ne_bytes());
    }

    #[test]
    fn a_datagram_is_split_into_its_whole_messages() {
        let (first, second) = (message(20, 0, b"abcde"), message(3, 0, &(-2i32).to_ne_bytes()));
        let padded = [&first[..], &[0; 3], &second].concat();
        assert_eq!(split_message(&padded), Some((&first[..], &second[..])));
        assert_eq!(split_message(&second), Some((&second[..], &[][..])));
        for rest in [&second[..19], &second[..3], &[0; 16], &[]] {
            assert_eq!(split_message(rest), None);
        }
        assert_eq!(code_of(&second).expect_err("a code").raw_os_error(), Some(libc::ENOENT));
        code_of(&message(3, 0, &[0; 4])).expect("0 is no error");
    }

    #[test]
    fn an_attribute_is_found_behind_others_with_padding() {
        let bytes = [attribute_bytes(3, b"eth0\0"), attribute_bytes(IFLA_MASTER, &[9, 0, 0, 0])].concat();
        assert_eq!(attribute(&bytes, IFLA_MASTER), Some(&[9, 0, 0, 0][..]));
        assert_eq!(attribute(&bytes, 11), None);
        assert_eq!(attribute(&bytes[..10], IFLA_MASTER), None);
    }
}
