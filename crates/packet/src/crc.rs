//! CRC32c, the checksum of SCTP (RFC 9260 appendix A).

/// The remainders of all bytes.
const TABLE: [u32; 256] = table();

/// The generator polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

/// The CRC32c of these bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !register(!0, bytes)
}

/// The shift register after more bytes.
fn register(crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)];
    bytes.iter().fold(crc, step)
}

/// The offset of the checksum in an SCTP header.
const SCTP_CHECKSUM: usize = 8;

/// Whether the checksum of an SCTP packet is right, of its header and all its chunks. `None` if it is too short to have one.
pub fn sctp_is_sound(packet: &[u8]) -> Option<bool> {
    let (before, rest) = packet.split_at_checked(SCTP_CHECKSUM)?;
    let (checksum, behind) = rest.split_first_chunk()?;
    // The field counts as zero (RFC 9260 section 6.8), and its lowest byte is sent first.
    let sum = !register(register(register(!0, before), &[0; 4]), behind);
    Some(u32::from_le_bytes(*checksum) == sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_come_out() {
        // RFC 3720 appendix B.4, and the check value of the usual catalogue.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn a_packet_s_own_checksum_counts_as_zero() {
        let mut packet: Vec<u8> = (0..40).collect();
        packet[8..12].fill(0);
        let sum = crc32c(&packet);
        packet[8..12].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(sctp_is_sound(&packet), Some(true));
        packet[30] ^= 1;
        assert_eq!(sctp_is_sound(&packet), Some(false));
        assert_eq!(sctp_is_sound(&packet[..11]), None);
    }
}
