//! IPv4 packets with a TCP segment: parsing, changes, and resegmentation.

use mmb_stream::{EditedPayload, GeneratedSegment, Outcome, Segment, StreamId, StreamTable, flag};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpOption, TcpPacket, TcpRepr, TcpSeqNumber,
    TcpTimestampRepr,
};

/// Bytes of an IPv4 header without options, the only ones that the ends send.
const IP_HEADER: usize = 20;

/// A packet on the way.
#[derive(Clone)]
pub(crate) struct Datagram(pub(crate) Vec<u8>);

impl Datagram {
    /// The packet of an end with a TCP segment.
    pub(crate) fn new(number: usize, repr: &TcpRepr<'_>) -> Datagram {
        let [src_addr, dst_addr] = [super::ADDRESSES[number], super::ADDRESSES[1 - number]];
        let (next_header, payload_len) = (IpProtocol::Tcp, repr.buffer_len());
        let ip = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: 64 };
        let mut bytes = vec![0; IP_HEADER + payload_len];
        ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes), &ChecksumCapabilities::default());
        let mut packet = Datagram(bytes);
        let (source, destination) = packet.addresses();
        repr.emit(&mut packet.tcp_mut(), &source, &destination, &ChecksumCapabilities::default());
        packet
    }

    /// Reads the TCP segment, if it can be read.
    pub(crate) fn read(&self, mut reader: impl FnMut(&TcpRepr<'_>)) {
        let (source, destination) = self.addresses();
        if let Ok(repr) = TcpRepr::parse(&self.tcp(), &source, &destination, &ChecksumCapabilities::default())
        {
            reader(&repr);
        }
    }

    fn addresses(&self) -> (IpAddress, IpAddress) {
        let ip = Ipv4Packet::new_unchecked(&self.0);
        (ip.src_addr().into(), ip.dst_addr().into())
    }

    fn tcp(&self) -> TcpPacket<&[u8]> {
        TcpPacket::new_unchecked(&self.0[IP_HEADER..])
    }

    fn tcp_mut(&mut self) -> TcpPacket<&mut [u8]> {
        TcpPacket::new_unchecked(&mut self.0[IP_HEADER..])
    }

    pub(crate) fn is_intact(&self) -> bool {
        let (source, destination) = self.addresses();
        self.tcp().verify_checksum(&source, &destination)
    }

    fn mend_checksum(&mut self) {
        let (source, destination) = self.addresses();
        self.tcp_mut().fill_checksum(&source, &destination);
    }

    /// Whose segment it is: 0 for the initiator's.
    pub(crate) fn direction(&self) -> usize {
        usize::from(Ipv4Packet::new_unchecked(&self.0).src_addr() == super::ADDRESSES[1])
    }

    pub(crate) fn seq(&self) -> u32 {
        self.tcp().seq_number().0.cast_unsigned()
    }

    pub(crate) fn payload(&self) -> &[u8] {
        self.tcp().payload()
    }

    /// What the table gets of it.
    pub(crate) fn segment(&self) -> Segment {
        let tcp = self.tcp();
        let bits = [
            (tcp.fin(), flag::FIN),
            (tcp.syn(), flag::SYN),
            (tcp.rst(), flag::RST),
            (tcp.ack(), flag::ACK),
            (tcp.urg(), flag::URG),
        ];
        let mut segment = Segment {
            seq: self.seq(),
            ack: tcp.ack_number().0.cast_unsigned(),
            flags: bits.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, bit)| flags | bit),
            window: tcp.window_len(),
            is_corrupt: !self.is_intact(),
            ..Segment::default()
        };
        let mut options = tcp.options();
        while let Ok((rest, option)) = TcpOption::parse(options) {
            match option {
                TcpOption::WindowScale(scale) => segment.scale = Some(scale),
                TcpOption::TimeStamp { tsval, tsecr } => segment.timestamps = Some([tsval, tsecr]),
                TcpOption::MaxSegmentSize(mss) => segment.mss = Some(mss),
                TcpOption::SackPermitted => segment.sack_permitted = true,
                TcpOption::SackRange(_) => segment.has_sack = true,
                TcpOption::EndOfList => break,
                _ => {}
            }
            if rest.is_empty() {
                break;
            }
            options = rest;
        }
        segment
    }

    /// Applies what the table returned, and the payload as it left it.
    pub(crate) fn apply(&mut self, outcome: &Outcome, payload: &[u8]) {
        assert_eq!(outcome.is_changed, self.payload() != payload, "changes are told");
        if !outcome.is_changed && outcome.window.is_none() && !outcome.clear_urgent {
            return;
        }
        let mut tcp = self.tcp_mut();
        tcp.payload_mut().copy_from_slice(payload);
        if let Some(window) = outcome.window {
            tcp.set_window_len(window);
        }
        if outcome.clear_urgent {
            tcp.set_urg(false);
            tcp.set_urgent_at(0);
        }
        self.mend_checksum();
    }

    /// The packet as the table has edited it.
    pub(crate) fn edited(
        &self,
        outcome: &Outcome,
        payload: &[u8],
        table: &StreamTable,
        id: StreamId,
    ) -> Datagram {
        let (edited, direction) = (outcome.edited.expect("an edited segment"), self.direction());
        let bytes = match edited.payload {
            EditedPayload::Same => payload.to_vec(),
            EditedPayload::Buffered { offset, len } => {
                let mut bytes = vec![0; len];
                table.copy_buffered(id, direction, offset, &mut bytes);
                bytes
            }
        };
        self.with(
            |repr| {
                repr.seq_number = TcpSeqNumber(edited.seq.cast_signed());
                repr.ack_number = repr.ack_number.map(|_| TcpSeqNumber(edited.ack.cast_signed()));
                repr.window_len = outcome.window.unwrap_or(repr.window_len);
                for range in &mut repr.sack_ranges {
                    let mapped =
                        range.and_then(|(left, right)| table.sack_to_input(id, 1 - direction, [left, right]));
                    *range = mapped.map(|[left, right]| (left, right));
                }
                repr.sack_ranges.sort_by_key(Option::is_none);
                if repr.control != TcpControl::Syn && repr.control != TcpControl::Rst {
                    repr.control = if edited.has_fin { TcpControl::Fin } else { TcpControl::None };
                }
            },
            &bytes,
        )
    }

    /// A packet that the table has generated, with the headers of this one.
    pub(crate) fn generated(&self, generated: &GeneratedSegment<'_>) -> Datagram {
        self.with(
            |repr| {
                repr.control =
                    if generated.flags & flag::FIN != 0 { TcpControl::Fin } else { TcpControl::None };
                repr.seq_number = TcpSeqNumber(generated.seq.cast_signed());
                repr.ack_number = Some(TcpSeqNumber(generated.ack.cast_signed()));
                repr.window_len = generated.window;
                (repr.window_scale, repr.max_seg_size, repr.sack_permitted) = (None, None, false);
                repr.sack_ranges = [None; 3];
                for (range, [left, right]) in repr.sack_ranges.iter_mut().zip(&generated.sack) {
                    *range = Some((*left, *right));
                }
                repr.timestamp = generated.timestamps.map(|[value, echo]| TcpTimestampRepr::new(value, echo));
            },
            generated.payload,
        )
    }

    /// The packet with a changed TCP header, and other bytes.
    fn with(&self, change: impl FnOnce(&mut TcpRepr<'_>), payload: &[u8]) -> Datagram {
        let (source, destination) = self.addresses();
        let tcp = self.tcp();
        let mut repr = TcpRepr::parse(&tcp, &source, &destination, &ChecksumCapabilities::default())
            .expect("a sound packet");
        repr.payload = payload;
        change(&mut repr);
        let mut bytes = self.0[..IP_HEADER].to_vec();
        bytes.resize(IP_HEADER + repr.buffer_len(), 0);
        let total = bytes.len() as u16;
        let mut ip = Ipv4Packet::new_unchecked(&mut bytes);
        ip.set_total_len(total);
        ip.fill_checksum();
        let mut packet = Datagram(bytes);
        repr.emit(&mut packet.tcp_mut(), &source, &destination, &ChecksumCapabilities::default());
        packet
    }

    /// Its header, for people.
    pub(crate) fn shown(&self) -> String {
        let Segment { seq, ack, flags, window, is_corrupt, timestamps, .. } = self.segment();
        let (arrow, len) = ([">", "<"][self.direction()], self.payload().len());
        let corrupt = if is_corrupt { " corrupt" } else { "" };
        format!(
            "{arrow} {seq} {len} bytes ack {ack} window {window} flags {flags:02x} {timestamps:?}{corrupt}"
        )
    }

    /// Tells another window.
    pub(crate) fn set_window(&mut self, window: u16) {
        self.tcp_mut().set_window_len(window);
        self.mend_checksum();
    }

    /// The same header with another number, other bytes, and a FIN or none.
    pub(crate) fn rebuilt(&self, seq: u32, payload: &[u8], fin: bool) -> Datagram {
        let header = IP_HEADER + usize::from(self.tcp().header_len());
        let mut bytes = self.0[..header].to_vec();
        bytes.extend_from_slice(payload);
        let total = bytes.len() as u16;
        let mut ip = Ipv4Packet::new_unchecked(&mut bytes);
        ip.set_total_len(total);
        ip.fill_checksum();
        let mut rebuilt = Datagram(bytes);
        rebuilt.tcp_mut().set_seq_number(TcpSeqNumber(seq.cast_signed()));
        rebuilt.tcp_mut().set_fin(fin);
        rebuilt.mend_checksum();
        rebuilt
    }
}
