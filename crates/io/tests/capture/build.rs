//! Builds captures byte by byte, so that the tests need no files and share no code with what they test.

/// Byte order of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) const BOTH: [Order; 2] = [Order::Little, Order::Big];

    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u64(self, value: u64) -> [u8; 8] {
        if self == Order::Big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// A pcap file header.
pub(crate) fn pcap_header(order: Order, magic: u32, snaplen: u32, link: u32) -> Vec<u8> {
    let mut out = order.u32(magic).to_vec();
    out.extend(order.u16(2));
    out.extend(order.u16(4));
    for word in [0, 0, snaplen, link] {
        out.extend(order.u32(word));
    }
    out
}

/// A pcap record.
pub(crate) fn record(order: Order, seconds: u32, fraction: u32, data: &[u8], original: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [seconds, fraction, data.len() as u32, original] {
        out.extend(order.u32(word));
    }
    out.extend(data);
    out
}

/// A pcapng block; the body is padded.
pub(crate) fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = order.u32(12 + body.len() as u32);
    [&order.u32(kind)[..], &len, &body, &len].concat()
}

/// A section header with a section length.
pub(crate) fn section(order: Order, len: u64) -> Vec<u8> {
    let body = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &order.u64(len)].concat();
    block(order, 0x0a0d_0d0a, &body)
}

/// An interface description.
pub(crate) fn interface(order: Order, link: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
    block(order, 1, &[&order.u16(link)[..], &[0, 0], &order.u32(snaplen), options].concat())
}

/// One option, padded.
pub(crate) fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut out = [&order.u16(code)[..], &order.u16(value.len() as u16), value].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn packet_body(
    order: Order,
    first: [u8; 4],
    time: u64,
    data: &[u8],
    original: u32,
    options: &[u8],
) -> Vec<u8> {
    let mut body = first.to_vec();
    for word in [(time >> 32) as u32, time as u32, data.len() as u32, original] {
        body.extend(order.u32(word));
    }
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend(options);
    body
}

/// An enhanced packet block.
pub(crate) fn enhanced(
    order: Order,
    interface: u32,
    time: u64,
    data: &[u8],
    original: u32,
    options: &[u8],
) -> Vec<u8> {
    block(order, 6, &packet_body(order, order.u32(interface), time, data, original, options))
}

/// An obsolete packet block.
pub(crate) fn obsolete(
    order: Order,
    interface: u16,
    drops: u16,
    time: u64,
    data: &[u8],
    options: &[u8],
) -> Vec<u8> {
    let mut first = [0; 4];
    first[..2].copy_from_slice(&order.u16(interface));
    first[2..].copy_from_slice(&order.u16(drops));
    block(order, 2, &packet_body(order, first, time, data, data.len() as u32, options))
}

/// A simple packet block.
pub(crate) fn simple(order: Order, data: &[u8], original: u32) -> Vec<u8> {
    block(order, 3, &[&order.u32(original)[..], data].concat())
}

/// Some bytes that are different for each `n`.
pub(crate) fn data(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + n) as u8).collect()
}

/// A pcapng capture with every kind of packet block, several interfaces and other blocks between.
pub(crate) fn every_block(order: Order) -> Vec<u8> {
    let comment = [option(order, 1, b"a comment"), option(order, 0, &[])].concat();
    let nano = [option(order, 2, b"eth0"), option(order, 9, &[9]), option(order, 0, &[])].concat();
    [
        section(order, u64::MAX),
        interface(order, 1, 0, &[]),
        interface(order, 101, 65535, &nano),
        enhanced(order, 0, 1_000_000, &data(60), 60, &[]),
        enhanced(order, 1, 2_000_000_001, &data(21), 1500, &comment),
        block(order, 4, &[0, 0, 0, 0]),
        obsolete(order, 1, 3, 2_500_000_000, &data(33), &comment),
        simple(order, &data(30), 30),
        block(order, 5, &[0; 12]),
        block(order, 0xbad, b"custom block"),
        section(order, u64::MAX),
        interface(order, 276, 0, &[]),
        enhanced(order, 0, 5_000_000, &data(64), 64, &[]),
    ]
    .concat()
}
