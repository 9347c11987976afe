//! Reads captures: recognises the format, then hands out one item after the other.

use super::bytes::ByteOrder;
use super::classic::{self, ClassicHeader};
use super::error::{CaptureError, CapturePlace};
use super::input::Input;
use super::item::{CaptureItem, Captured, Format, MAX_BLOCK_BYTES, Meta};
use super::ng::{self, NgSection};
use std::io::Read;

/// Reads one capture from its beginning.
pub struct CaptureReader<R> {
    input: Input<R>,
    state: ReaderState,
    /// Packets handed out so far.
    packets: u64,
    /// Time of the last packet, for those that have none.
    last_ns: u64,
}

enum ReaderState {
    /// The file header comes next.
    Start(ClassicHeader),
    Records(ClassicHeader),
    /// Until the first section header there is no section.
    Blocks(Option<NgSection>),
    /// Nothing more comes: the end, or an error.
    Done(Format),
}

impl<R: Read> CaptureReader<R> {
    /// Recognises the format from the start of a stream.
    ///
    /// # Errors
    /// The stream is no capture that mmb reads.
    pub fn open(source: R) -> Result<Self, CaptureError> {
        let mut input = Input::new(source);
        let have = available(&mut input, classic::FILE_HEADER)?;
        let start = input.peek(have);
        if have == 0 {
            return Err(CaptureError::Empty);
        }
        let state = if have >= 4 && ByteOrder::Little.u32(start, 0) == ng::SECTION {
            ReaderState::Blocks(None)
        } else if let Some((order, magic)) = start.get(..4).and_then(classic::recognise) {
            if have < classic::FILE_HEADER {
                let need = classic::FILE_HEADER as u64;
                return Err(CaptureError::Truncated {
                    what: CapturePlace::FileHeader,
                    offset: 0,
                    need,
                    have: have as u64,
                });
            }
            ReaderState::Start(ClassicHeader::parse(start, order, magic)?)
        } else {
            return Err(not_a_capture(start));
        };
        Ok(CaptureReader { input, state, packets: 0, last_ns: 0 })
    }

    /// The capture's format.
    pub fn format(&self) -> Format {
        match self.state {
            ReaderState::Start(_) | ReaderState::Records(_) => Format::Pcap,
            ReaderState::Blocks(_) => Format::PcapNg,
            ReaderState::Done(format) => format,
        }
    }

    /// The next packet or block, in the order of the file; `None` at its end.
    ///
    /// # Errors
    /// The error in the file; the next call returns `None`.
    pub fn next_item(&mut self) -> Result<Option<CaptureItem<'_>>, CaptureError> {
        let found = match self.state {
            ReaderState::Start(header) => {
                self.state = ReaderState::Records(header);
                Ok(Some(FoundBlock { len: classic::FILE_HEADER, packet: None }))
            }
            ReaderState::Records(header) => self.find_record(&header),
            ReaderState::Blocks(_) => self.find_block(),
            ReaderState::Done(_) => Ok(None),
        };
        match found {
            Ok(Some(found)) => Ok(Some(self.hand_out(found))),
            end => {
                self.state = ReaderState::Done(self.format());
                end.map(|_| None)
            }
        }
    }

    fn hand_out(&mut self, found: FoundBlock) -> CaptureItem<'_> {
        let bytes = self.input.take(found.len);
        let Some((meta, data_at, options)) = found.packet else {
            return CaptureItem::Block(bytes);
        };
        self.packets = meta.number;
        self.last_ns = meta.time_ns;
        // Both ranges were checked against the record or block when it was found.
        let data = bytes.get(data_at..data_at + meta.captured_len as usize).unwrap_or_default();
        CaptureItem::Packet(Captured { meta, data, options: bytes.get(options).unwrap_or_default() })
    }

    #[inline]
    fn find_record(&mut self, header: &ClassicHeader) -> Result<Option<FoundBlock>, CaptureError> {
        let (number, offset) = (self.packets + 1, self.input.offset());
        let have = available(&mut self.input, classic::RECORD_HEADER)?;
        if have == 0 {
            return Ok(None);
        }
        let cut = |need: usize, have: usize| CaptureError::Truncated {
            what: CapturePlace::Packet(number),
            offset,
            need: need as u64,
            have: have as u64,
        };
        if have < classic::RECORD_HEADER {
            return Err(cut(classic::RECORD_HEADER, have));
        }
        let meta = header.record(self.input.peek(have), number, offset)?;
        let len = classic::RECORD_HEADER + meta.captured_len as usize;
        let have = available(&mut self.input, len)?;
        if have < len {
            return Err(cut(len, have));
        }
        Ok(Some(FoundBlock { len, packet: Some((meta, classic::RECORD_HEADER, len..len)) }))
    }

    fn find_block(&mut self) -> Result<Option<FoundBlock>, CaptureError> {
        let ReaderState::Blocks(section) = &mut self.state else { return Ok(None) };
        let (number, offset) = (self.packets + 1, self.input.offset());
        let Some(block) = whole_block(&mut self.input, section.as_ref(), number)? else {
            return Ok(None);
        };
        let bytes = self.input.peek(block.len);
        let body = &bytes[ng::HEAD..block.len - ng::TAIL];
        let broken = |what, why| CaptureError::Broken { what, offset, why };
        let in_block = CapturePlace::Block { kind: Some(block.kind), before: number };
        let section = match section {
            Some(section) if block.kind != ng::SECTION => section,
            none_or_old => {
                check_section(body, block.order).map_err(|why| broken(in_block, why))?;
                *none_or_old = Some(NgSection::new(block.order));
                return Ok(Some(FoundBlock { len: block.len, packet: None }));
            }
        };
        if block.kind == ng::INTERFACE {
            section.interface(body).map_err(|why| broken(in_block, why))?;
        }
        let Some(packet) = section.packet(block.kind, body) else {
            return Ok(Some(FoundBlock { len: block.len, packet: None }));
        };
        let packet = packet.map_err(|why| broken(CapturePlace::Packet(number), why))?;
        let meta = Meta {
            number,
            time_ns: packet.time_ns.unwrap_or(self.last_ns),
            link: packet
                .link
                .map_err(|code| CaptureError::LinkType { what: CapturePlace::Packet(number), code })?,
            captured_len: packet.captured_len,
            original_len: packet.original_len,
            frame: packet.frame,
            big_endian: block.order.is_big(),
        };
        let options = ng::HEAD + packet.options_at()..block.len - ng::TAIL;
        Ok(Some(FoundBlock { len: block.len, packet: Some((meta, ng::HEAD + packet.head, options)) }))
    }
}

/// The item at the start of the window.
struct FoundBlock {
    /// Its length.
    len: usize,
    /// For a packet: its data, the offset of its bytes, and the range of its options.
    packet: Option<(Meta, usize, std::ops::Range<usize>)>,
}

/// A block that is whole in the window.
struct WholeBlock {
    kind: u32,
    order: ByteOrder,
    len: usize,
}

/// Waits for the next block to be in the window as a whole; `None` at the end of the stream.
fn whole_block<R: Read>(
    input: &mut Input<R>,
    section: Option<&NgSection>,
    before: u64,
) -> Result<Option<WholeBlock>, CaptureError> {
    let offset = input.offset();
    let have = available(input, ng::HEAD + ng::TAIL)?;
    if have == 0 {
        return Ok(None);
    }
    let unknown = CapturePlace::Block { kind: None, before };
    if have < ng::HEAD + ng::TAIL {
        let need = (ng::HEAD + ng::TAIL) as u64;
        return Err(CaptureError::Truncated { what: unknown, offset, need, have: have as u64 });
    }
    let head = input.peek(have);
    let broken = |what, why: String| Err(CaptureError::Broken { what, offset, why });
    // A section header tells its own byte order, behind a length that is in it.
    let is_section = ByteOrder::Little.u32(head, 0) == ng::SECTION;
    let order = match section {
        Some(section) if !is_section => section.order,
        _ => match ng::section_order(&head[ng::HEAD..]) {
            Some(order) => order,
            None => return broken(unknown, "a section header without a byte-order magic".into()),
        },
    };
    let (kind, len) = (order.u32(head, 0), order.u32(head, 4));
    let is_packet = matches!(kind, ng::ENHANCED | ng::SIMPLE | ng::OBSOLETE);
    let what = if is_packet {
        CapturePlace::Packet(before)
    } else {
        CapturePlace::Block { kind: Some(kind), before }
    };
    if (len as usize) < ng::HEAD + ng::TAIL || len % 4 != 0 || len as usize > MAX_BLOCK_BYTES {
        return broken(
            what,
            format!("a block cannot be {len} bytes long (12 to {MAX_BLOCK_BYTES}, in fours)"),
        );
    }
    let len = len as usize;
    let have = available(input, len)?;
    if have < len {
        return Err(CaptureError::Truncated { what, offset, need: len as u64, have: have as u64 });
    }
    let again = order.u32(input.peek(len), len - ng::TAIL);
    if again as usize != len {
        return broken(what, format!("its block is {len} bytes long by its head and {again} by its end"));
    }
    Ok(Some(WholeBlock { kind, order, len }))
}

fn check_section(body: &[u8], order: ByteOrder) -> Result<(), String> {
    if body.len() < 16 {
        return Err(format!("a section header needs 16 bytes, here are {}", body.len()));
    }
    match order.u16(body, 4) {
        1 => Ok(()),
        major => Err(format!("pcapng version {major}.{} is not supported", order.u16(body, 6))),
    }
}

/// The error for a file that is no capture, by its first bytes.
fn not_a_capture(start: &[u8]) -> CaptureError {
    let compressed = |with, unpack| CaptureError::Compressed { with, unpack };
    match start {
        [0x1f, 0x8b, ..] => compressed("gzip", "zcat"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => compressed("zstd", "zstdcat"),
        [0x04, 0x22, 0x4d, 0x18, ..] => compressed("lz4", "lz4cat"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => compressed("xz", "xzcat"),
        [b'B', b'Z', b'h', ..] => compressed("bzip2", "bzcat"),
        [b's', b'n', b'o', b'o', b'p', ..] => CaptureError::Unsupported("the snoop format".into()),
        _ => {
            let hex: Vec<String> = start.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            CaptureError::NotACapture(hex.join(" "))
        }
    }
}

#[inline]
fn available<R: Read>(input: &mut Input<R>, want: usize) -> Result<usize, CaptureError> {
    input.available(want).map_err(|source| CaptureError::Read { offset: input.offset(), source })
}
