//! Opens the captures of a wiring: all inputs before any output, and no output over a file that is read.

use super::wiring::{ReplayDirection, ReplayWiring, is_standard};
use anyhow::{Context, bail};
use mmb_io::pcap::{CaptureReader, CaptureWriter};
use mmb_packet::PortId;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size in bytes of the output buffer.
const CHUNK: usize = 256 << 10;

/// One direction: a capture to read and the one to write.
pub(super) struct Stream {
    /// The port where the packets enter.
    pub(super) from: PortId,
    /// The port whose output this is.
    pub(super) to: PortId,
    /// The input's name in messages.
    pub(super) input_name: String,
    /// The output's name in messages.
    pub(super) output_name: String,
    /// The input.
    pub(super) reader: CaptureReader<Box<dyn Read>>,
    /// The output.
    pub(super) writer: CaptureWriter<Box<dyn Write>>,
}

/// Opens every file of the wiring. `rules` was read already and must not be overwritten; `changes` tells the writers
/// that packets may be changed.
///
/// # Errors
/// A file cannot be opened, an input is no capture, or an output is also an input or another output.
pub(super) fn open(wiring: &ReplayWiring, rules: &Path, changes: bool) -> anyhow::Result<Vec<Stream>> {
    let mut used = vec![UsedFile::of(rules, "the policy")];
    let mut readers = Vec::new();
    for direction in &wiring.directions {
        let source =
            open_input(direction, &mut used).with_context(|| name(&direction.input, "standard input"))?;
        let reader = CaptureReader::open(source).with_context(|| name(&direction.input, "standard input"))?;
        readers.push(reader);
    }
    let mut streams = Vec::new();
    for (direction, reader) in wiring.directions.iter().zip(readers) {
        let out = open_output(direction, &mut used)
            .with_context(|| format!("cannot write {}", name(&direction.output, "standard output")))?;
        streams.push(Stream {
            from: PortId(direction.from),
            to: PortId(1 - direction.from),
            input_name: name(&direction.input, "standard input"),
            output_name: name(&direction.output, "standard output"),
            writer: CaptureWriter::new(out, reader.format(), changes),
            reader,
        });
    }
    Ok(streams)
}

/// A regular file in use, and its use.
struct UsedFile {
    /// Device and inode; `None` if the file is not regular.
    file: Option<(u64, u64)>,
    role: &'static str,
    path: PathBuf,
}

impl UsedFile {
    fn of(path: &Path, role: &'static str) -> UsedFile {
        let metadata = if is_standard(path) { None } else { std::fs::metadata(path).ok() };
        UsedFile { file: metadata.as_ref().and_then(identity), role, path: path.to_owned() }
    }
}

fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

fn open_input(direction: &ReplayDirection, used: &mut Vec<UsedFile>) -> io::Result<Box<dyn Read>> {
    if is_standard(&direction.input) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(&direction.input)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    used.push(UsedFile::of(&direction.input, "an input"));
    Ok(Box::new(file))
}

/// Opens an output and empties it, after the check that it is no file in use.
fn open_output(direction: &ReplayDirection, used: &mut Vec<UsedFile>) -> anyhow::Result<Box<dyn Write>> {
    if is_standard(&direction.output) {
        return Ok(Box::new(BufWriter::with_capacity(CHUNK, io::stdout().lock())));
    }
    let file = mmb_files::open_output(&direction.output)?;
    if let Some(identity) = identity(&file.metadata()?) {
        if let Some(same) = used.iter().find(|used| used.file == Some(identity)) {
            bail!("it is {} as well ({})", same.role, same.path.display());
        }
        used.push(UsedFile { file: Some(identity), role: "another output", path: direction.output.clone() });
        file.set_len(0)?;
    }
    Ok(Box::new(BufWriter::with_capacity(CHUNK, file)))
}

fn name(path: &Path, standard: &str) -> String {
    if is_standard(path) { standard.to_owned() } else { path.display().to_string() }
}
