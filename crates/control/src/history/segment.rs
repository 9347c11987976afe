//! A part of the history that is stored and deleted as a whole: a version with its policy, and the entries behind it as differences.
//!
//! A segment is a row of gzip members (RFC 1952), in memory or in a file. What is written at once is one member, whose checksum tells whether it
//! was written to its end. `zcat` shows a file as text.

use super::record::EntryHeader;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use mmb_files::Directory;
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::sync::Arc;

/// Files are readable by their owner only: rules have addresses and names.
const MODE: u32 = 0o600;

/// Stands before the digest of a whole policy, behind its lines.
const DIGEST: &str = "@digest ";

/// The longest line that is read: the patterns of a list take twice their bytes.
const MAX_LINE_BYTES: u64 = 160 << 20;

/// A segment, and where its bytes are.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its first version.
    pub(crate) first: u64,
    /// The versions in it that are not the same as the one before them.
    pub(crate) versions: u64,
    /// Bytes as they are stored.
    pub(crate) stored: u64,
    /// Its text.
    pub(crate) size: SegmentSize,
    storage: Storage,
}

/// The text of a segment in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentSize {
    /// Bytes of the first version.
    pub(crate) whole: u64,
    /// Bytes behind it.
    pub(crate) behind: u64,
    /// The digest of the first version.
    pub(crate) digest: u64,
}

impl SegmentSize {
    /// Adds a line that was read.
    pub(crate) fn add(&mut self, line: &str) {
        self.behind += line.len() as u64 + 1;
        if let Some(digest) = line.strip_prefix(DIGEST) {
            self.digest = u64::from_str_radix(digest, 16).unwrap_or_default();
            self.whole = std::mem::take(&mut self.behind);
        }
    }
}

#[derive(Debug)]
enum Storage {
    Memory(Vec<u8>),
    File(Arc<Directory>, OsString),
}

impl Segment {
    /// Writes a segment of one version, in a directory or in memory, of at most so many bytes. A file has its name when it is complete.
    pub(crate) fn create(
        directory: Option<&Arc<Directory>>,
        first: u64,
        header: &EntryHeader,
        lines: impl Iterator<Item = String>,
        max: u64,
    ) -> io::Result<Segment> {
        let Some(directory) = directory else {
            let (memory, written) = write_whole(Vec::new(), header, lines, max)?;
            return Ok(Segment::new(first, written, Storage::Memory(memory)));
        };
        let name = file_name(first);
        let temporary = format!(".{name}.tmp");
        // A crash may have left one behind.
        let _ = directory.remove(&temporary);
        let created = (|| {
            let file = directory.create_file(&temporary, OFlags::WRONLY, MODE)?;
            let (file, written) = write_whole(BufWriter::new(file), header, lines, max)?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            directory.rename(&temporary, &name)?;
            Ok(written)
        })();
        if created.is_err() {
            let _ = directory.remove(&temporary);
        }
        let storage = Storage::File(Arc::clone(directory), name.into());
        created.map(|written| Segment::new(first, written, storage))
    }

    fn new(first: u64, written: Written, storage: Storage) -> Segment {
        let Written { stored, size } = written;
        Segment { first, versions: 1, stored, size, storage }
    }

    /// A file of an earlier run, of which nothing is known but the name.
    pub(crate) fn unread(directory: &Arc<Directory>, name: &OsStr, first: u64, stored: u64) -> Segment {
        let storage = Storage::File(Arc::clone(directory), name.to_owned());
        Segment { first, versions: 0, stored, size: SegmentSize::default(), storage }
    }

    /// Appends text behind the first version.
    pub(crate) fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text)?;
        let member = encoder.finish()?;
        match &mut self.storage {
            Storage::Memory(memory) => {
                memory.reserve_exact(member.len().max(memory.len() / 8));
                memory.extend_from_slice(&member);
            }
            Storage::File(directory, name) => {
                let mut file = directory.open_file(name, OFlags::WRONLY | OFlags::APPEND)?;
                let written = file.write_all(&member).and_then(|()| file.sync_data());
                if let Err(error) = written {
                    // A part of a member would break what is behind it. If that fails too, the next run reads up to there.
                    let _ = file.set_len(self.stored);
                    return Err(error);
                }
            }
        }
        self.stored += member.len() as u64;
        self.size.behind += text.len() as u64;
        Ok(())
    }

    /// Calls `take` with each line, until it returns false.
    ///
    /// # Errors
    /// The file cannot be read, or its bytes are broken from some place on.
    pub(crate) fn read(&self, take: &mut dyn FnMut(&str) -> bool) -> io::Result<()> {
        match &self.storage {
            Storage::Memory(memory) => read_lines(&memory[..], take),
            Storage::File(directory, name) => {
                // What is behind was not written to its end.
                let written = directory.open_file(name, OFlags::RDONLY)?.take(self.stored);
                read_lines(BufReader::new(written), take)
            }
        }
    }

    /// Deletes the file.
    pub(crate) fn delete(self) {
        if let Storage::File(directory, name) = self.storage {
            let _ = directory.remove(name);
        }
    }

    /// The name of the file, for people.
    pub(crate) fn name(&self) -> String {
        match &self.storage {
            Storage::Memory(_) => "memory".to_owned(),
            Storage::File(directory, name) => directory.path().join(name).display().to_string(),
        }
    }
}

/// Whether a line is the digest behind a whole policy.
pub(crate) fn is_digest(line: &str) -> bool {
    line.starts_with(DIGEST)
}

/// The digest of a policy whose lines these are.
pub(crate) fn digest(lines: impl Iterator<Item = String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.for_each(|line| add_to_digest(&mut hasher, &line));
    hasher.finish()
}

fn add_to_digest(hasher: &mut DefaultHasher, line: &str) {
    hasher.write(line.as_bytes());
    hasher.write_u8(b'\n');
}

/// The name of the file of the segment that begins with this version.
fn file_name(first: u64) -> String {
    format!("policy-{first:010}.gz")
}

/// The first version of the segment in a file of this name, if it is one.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("policy-")?.strip_suffix(".gz")?;
    digits.parse().ok().filter(|first| file_name(*first) == name)
}

/// What was written.
struct Written {
    stored: u64,
    size: SegmentSize,
}

/// A writer of at most so many bytes.
struct Limited<W> {
    to: W,
    written: u64,
    max: u64,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written + bytes.len() as u64 > self.max {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the policy is too large for the history",
            ));
        }
        self.to.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn write_whole<W: Write>(
    to: W,
    header: &EntryHeader,
    lines: impl Iterator<Item = String>,
    max: u64,
) -> io::Result<(W, Written)> {
    let mut encoder = GzEncoder::new(Limited { to, written: 0, max }, Compression::fast());
    header.write(&mut encoder)?;
    let (mut hasher, mut whole) = (DefaultHasher::new(), 0);
    for line in lines {
        add_to_digest(&mut hasher, &line);
        whole += line.len() as u64 + 1;
        encoder.write_all(line.as_bytes())?;
        encoder.write_all(b"\n")?;
    }
    let digest = hasher.finish();
    writeln!(encoder, "{DIGEST}{digest:016x}")?;
    let Limited { to, written, .. } = encoder.finish()?;
    Ok((to, Written { stored: written, size: SegmentSize { whole, behind: 0, digest } }))
}

fn read_lines(from: impl BufRead, take: &mut dyn FnMut(&str) -> bool) -> io::Result<()> {
    let mut lines = BufReader::new(MultiGzDecoder::new(from));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut lines, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "this is no history of policies");
        let text = line.strip_suffix(b"\n").ok_or_else(broken)?;
        if !take(std::str::from_utf8(text).map_err(|_| broken())?) {
            return Ok(());
        }
    }
}
