//! Writes frames to a capture file, so that other programs can be measured with the same packets.

use std::io::{self, Write};

/// Little-endian pcap in microseconds, version 2.4, frames of up to 256 KB, Ethernet.
const FILE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// Writes Ethernet frames, a microsecond apart.
///
/// # Errors
/// The error of the system.
pub fn write<'a>(out: &mut impl Write, frames: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
    out.write_all(&FILE_HEADER)?;
    for (number, frame) in frames.into_iter().enumerate() {
        let (seconds, micros) = (number / 1_000_000, number % 1_000_000);
        for word in [seconds, micros, frame.len(), frame.len()] {
            out.write_all(&(word as u32).to_le_bytes())?;
        }
        out.write_all(frame)?;
    }
    out.flush()
}
