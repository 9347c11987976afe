//! The kernel's own types, as far as needed to call one of its functions from a BPF program: by the number of its type.

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_FUNC: u32 = 12;

/// The number of a kernel function's type; `None` if this kernel has no such function.
pub(super) fn function(name: &str) -> Option<u32> {
    find(&std::fs::read(VMLINUX).ok()?, name)
}

/// The number of the type of kind "function" with that name (BPF Type Format, kernel documentation `bpf/btf.rst`).
fn find(btf: &[u8], name: &str) -> Option<u32> {
    let half = |at: usize| Some(u16::from_ne_bytes(*btf.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_ne_bytes(*btf.get(at..)?.first_chunk()?));
    if half(0)? != MAGIC {
        return None;
    }
    // The header: magic, version, flags, its own length, then offsets and lengths behind it.
    let header = word(4)? as usize;
    let (types, types_len) = (header + word(8)? as usize, word(12)? as usize);
    let (strings, strings_len) = (header + word(16)? as usize, word(20)? as usize);
    let strings = btf.get(strings..strings + strings_len)?;
    let named = |offset: u32| {
        let text = strings.get(offset as usize..).unwrap_or_default();
        text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0)
    };
    let (mut at, mut number) = (types, 1);
    while at < types + types_len {
        let (name_at, info) = (word(at)?, word(at + 4)?);
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_FUNC && named(name_at) {
            return Some(number);
        }
        at += 12 + extra(kind, count)?;
        number += 1;
    }
    None
}

/// Bytes behind the three words that every type has.
fn extra(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumerations, prototypes.
        6 | 13 => 8 * count,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn functions_are_found_behind_types_of_every_size() {
        let strings = b"\0int\0first\0second\0";
        let mut types = words(&[1, 1 << 24, 4, 32]); // an integer
        types.extend(words(&[0, 13 << 24 | 1, 1, 0, 1])); // a prototype with one parameter
        types.extend(words(&[5, 12 << 24, 2]));
        types.extend(words(&[0, 4 << 24 | 1, 4, 1, 1, 0])); // a structure with one member
        types.extend(words(&[11, 12 << 24, 2]));
        let mut btf = words(&[u32::from(MAGIC) | 1 << 16, 24, 0, types.len() as u32]);
        btf.extend(words(&[types.len() as u32, strings.len() as u32]));
        btf.extend(types);
        btf.extend(strings);
        assert_eq!(find(&btf, "first"), Some(3));
        assert_eq!(find(&btf, "second"), Some(5));
        assert_eq!(find(&btf, "int"), None);
        assert_eq!(find(&btf, "sec"), None);
        for end in 0..btf.len() {
            find(&btf[..end], "third");
        }
    }
}
