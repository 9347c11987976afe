//! A packet as the engine sees it: one whole buffer with a start and a length.

/// A port by its number in the engine's port table. Ports have names only towards people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// The first header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LinkType {
    /// Ethernet II or 802.3, with any 802.1Q / 802.1ad tags.
    #[default]
    Ethernet,
    /// No link header: an IPv4 or IPv6 header, told apart by its version.
    RawIp,
    /// Linux cooked capture (16 bytes, protocol at 14).
    Sll,
    /// Linux cooked capture v2 (20 bytes, protocol at 0).
    Sll2,
}

impl LinkType {
    /// Bytes of the link header, VLAN tags not counted.
    #[inline]
    pub fn header_len(self) -> usize {
        match self {
            LinkType::Ethernet => 14,
            LinkType::RawIp => 0,
            LinkType::Sll => 16,
            LinkType::Sll2 => 20,
        }
    }
}

/// A packet: the whole buffer with the packet's start and length in it.
///
/// The bytes before the start are headroom, those after the end tailroom, so that the packet grows and shrinks
/// at either end without unsafe code. Only the host knows where the buffer came from.
///
/// Invariant: `start + len <= buffer.len()`.
#[derive(Debug)]
pub struct Packet<'a> {
    buffer: &'a mut [u8],
    start: u32,
    len: u32,
    /// The port that the packet came in by.
    pub port: PortId,
    /// The first header of the packet.
    pub link: LinkType,
}

impl<'a> Packet<'a> {
    /// A packet of `len` bytes at `start` of `buffer`; `None` if that is not inside the buffer.
    #[inline]
    pub fn new(
        buffer: &'a mut [u8],
        start: usize,
        len: usize,
        port: PortId,
        link: LinkType,
    ) -> Option<Packet<'a>> {
        let end = start.checked_add(len)?;
        if end > buffer.len() || end > u32::MAX as usize {
            return None;
        }
        Some(Packet { buffer, start: start as u32, len: len as u32, port, link })
    }

    /// The packet's bytes, link header first.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.start as usize + self.len as usize]
    }

    /// The packet's bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start as usize..self.start as usize + self.len as usize]
    }

    /// Length in bytes, link header included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The offset of the packet in its buffer, which is also its headroom in bytes.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start as usize
    }

    /// Moves the start `by` bytes forward; the bytes there become headroom. False, with nothing done, if the
    /// packet is shorter than that.
    #[inline]
    pub fn shrink_front(&mut self, by: usize) -> bool {
        if by > self.len as usize {
            return false;
        }
        self.start += by as u32;
        self.len -= by as u32;
        true
    }

    /// Moves the start `by` bytes back into the headroom; the new bytes hold whatever lay there. False, with
    /// nothing done, if the headroom is smaller.
    #[inline]
    pub fn grow_front(&mut self, by: usize) -> bool {
        if by > self.start as usize {
            return false;
        }
        self.start -= by as u32;
        self.len += by as u32;
        true
    }

    /// Moves the end `by` bytes back into the tailroom; the new bytes hold whatever lay there. False, with nothing done, if the tailroom is
    /// smaller.
    #[inline]
    pub fn grow_back(&mut self, by: usize) -> bool {
        if by > self.buffer.len() - self.start as usize - self.len as usize {
            return false;
        }
        self.len += by as u32;
        true
    }
}
