//! Writes captures: what a reader handed out, with packets changed or left out.

use super::bytes::{ByteOrder, padded};
use super::item::{Format, Frame, MAX_GROWTH_BYTES, Meta};
use super::{classic, ng};
use std::io::{self, Write};

/// Writes one capture in the format of the one that its items come from.
///
/// Give it every block in its place. What depends on the packets follows: the length of a section becomes unknown;
/// and where packets may be changed, snap lengths grow by [`MAX_GROWTH_BYTES`], so that no packet is longer, and hashes of
/// packets are left out.
pub struct CaptureWriter<W> {
    out: W,
    format: Format,
    changes: bool,
    order: ByteOrder,
    described: Described,
}

/// The data about packets from the blocks so far.
enum Described {
    Nothing,
    File(classic::ClassicHeader),
    Section(ng::NgSection),
}

impl<W: Write> CaptureWriter<W> {
    /// A writer for items of a reader of that format. `changes`: packets may come with other bytes than were read.
    /// `out` should be buffered.
    pub fn new(out: W, format: Format, changes: bool) -> Self {
        CaptureWriter { out, format, changes, order: ByteOrder::Little, described: Described::Nothing }
    }

    /// Writes what is not a packet.
    ///
    /// # Errors
    /// An error of the system.
    pub fn block(&mut self, block: &[u8]) -> io::Result<()> {
        match self.format {
            Format::Pcap => {
                if let Some((order, magic)) = classic::recognise(block) {
                    self.order = order;
                    let header = classic::ClassicHeader::parse(block, order, magic);
                    self.described = header.map_or(Described::Nothing, Described::File);
                }
                self.with_snaplen(block, classic::SNAPLEN_AT)
            }
            Format::PcapNg if ByteOrder::Little.u32(block, 0) == ng::SECTION => {
                self.order = block.get(ng::HEAD..).and_then(ng::section_order).unwrap_or(self.order);
                self.described = Described::Section(ng::NgSection::new(self.order));
                self.with(block, ng::SECTION_LEN_AT, &[0xff; 8])
            }
            Format::PcapNg if self.order.u32(block, 0) == ng::INTERFACE => {
                let body = block.get(ng::HEAD..block.len().saturating_sub(ng::TAIL));
                if let (Described::Section(section), Some(body)) = (&mut self.described, body) {
                    section.interface(body).map_err(io::Error::other)?;
                }
                self.with_snaplen(block, ng::SNAPLEN_AT)
            }
            Format::PcapNg => self.out.write_all(block),
        }
    }

    /// Writes a packet whose bytes are now `data`; `options` are those of the packet as it was read.
    ///
    /// # Errors
    /// An error of the system; a packet with more bytes than a capture can hold.
    #[inline]
    pub fn packet(&mut self, meta: &Meta, data: &[u8], options: &[u8]) -> io::Result<()> {
        let order = ByteOrder::of(meta.big_endian);
        let len = u32::try_from(data.len()).map_err(io::Error::other)?;
        let original = meta.original_len_at(data.len());
        match meta.frame {
            Frame::Record { seconds, fraction } => {
                self.out.write_all(words(order, [seconds, fraction, len, original]).as_flattened())?;
                self.out.write_all(data)
            }
            Frame::Enhanced { interface, time_high, time_low } => {
                let head = words(order, [interface, time_high, time_low, len, original]);
                self.packet_block(order, ng::ENHANCED, head.as_flattened(), data, options)
            }
            Frame::Obsolete { interface, drops, time_high, time_low } => {
                let mut head = words(order, [0, time_high, time_low, len, original]);
                head[0][..2].copy_from_slice(&order.put16(interface));
                head[0][2..].copy_from_slice(&order.put16(drops));
                self.packet_block(order, ng::OBSOLETE, head.as_flattened(), data, options)
            }
            Frame::Simple => {
                // How much of such a packet was captured is told by the snap length. If that grew, a packet that it
                // had cut would seem to go on into the padding.
                let original = if self.changes { len } else { original };
                self.packet_block(order, ng::SIMPLE, words(order, [original]).as_flattened(), data, &[])
            }
        }
    }

    /// Writes a packet that was read from another capture, with its time in the units of this one and without options.
    ///
    /// # Errors
    /// As [`CaptureWriter::packet`], or that this capture has no packets of that link type.
    pub fn foreign(&mut self, meta: &Meta, data: &[u8]) -> io::Result<()> {
        let adopted = match &self.described {
            Described::Nothing => None,
            Described::File(header) => header.adopt(meta),
            Described::Section(section) => section.adopt(meta),
        };
        let adopted = adopted.ok_or_else(|| {
            io::Error::other(format!(
                "a packet of link type {:?} that goes back to where it came from has no place in a capture of other ones",
                meta.link
            ))
        })?;
        self.packet(&adopted, data, &[])
    }

    /// Hands on what is still buffered, and gives the output back.
    ///
    /// # Errors
    /// An error of the system.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn packet_block(
        &mut self,
        order: ByteOrder,
        kind: u32,
        head: &[u8],
        data: &[u8],
        options: &[u8],
    ) -> io::Result<()> {
        let hashed = self.changes && has_hash(options, order);
        let kept = if hashed { without_hash(options, order) } else { Vec::new() };
        let options = if hashed { &kept } else { options };
        let padding = padded(data.len()) - data.len();
        let len = ng::HEAD + head.len() + data.len() + padding + options.len() + ng::TAIL;
        let len = order.put32(u32::try_from(len).map_err(io::Error::other)?);
        self.out.write_all(&order.put32(kind))?;
        self.out.write_all(&len)?;
        self.out.write_all(head)?;
        self.out.write_all(data)?;
        self.out.write_all(&[0; 3][..padding])?;
        self.out.write_all(options)?;
        self.out.write_all(&len)
    }

    /// Writes a block with its snap length made larger where packets may grow; 0 means that there is no bound.
    fn with_snaplen(&mut self, block: &[u8], at: usize) -> io::Result<()> {
        let snaplen = self.order.u32(block, at);
        let grown =
            if self.changes && snaplen != 0 { snaplen.saturating_add(MAX_GROWTH_BYTES) } else { snaplen };
        let grown = self.order.put32(grown);
        self.with(block, at, &grown)
    }

    /// Writes a block with other bytes at one place, if it is long enough to have that place.
    fn with(&mut self, block: &[u8], at: usize, bytes: &[u8]) -> io::Result<()> {
        if block.len() < at + bytes.len() {
            return self.out.write_all(block);
        }
        self.out.write_all(&block[..at])?;
        self.out.write_all(bytes)?;
        self.out.write_all(&block[at + bytes.len()..])
    }
}

#[inline]
fn words<const N: usize>(order: ByteOrder, numbers: [u32; N]) -> [[u8; 4]; N] {
    numbers.map(|number| order.put32(number))
}

fn has_hash(options: &[u8], order: ByteOrder) -> bool {
    !options.is_empty() && ng::NgOptions::new(options, order).any(|(code, ..)| code == ng::OPTION_HASH)
}

/// The options but hashes, with the end-of-options mark.
fn without_hash(options: &[u8], order: ByteOrder) -> Vec<u8> {
    let mut kept: Vec<u8> = ng::NgOptions::new(options, order)
        .filter(|&(code, ..)| code != ng::OPTION_HASH)
        .flat_map(|(_, _, whole)| whole.iter().copied())
        .collect();
    if !kept.is_empty() {
        kept.extend([0; 4]);
    }
    kept
}
