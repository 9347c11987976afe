//! A file of JSON, one object a line. The sink appends to it, and opens it again after a rotation. It never follows a
//! symbolic link: another user who may write to the directory of the file could redirect it.

use super::contract::Sink;
use crate::json;
use crate::record::Record;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are written at once, approximately.
const BYTES_AT_ONCE: usize = 64 << 10;
/// Rights of a file that is created: others must not read who talks to whom.
const MODE: u32 = 0o640;

/// A file.
pub(super) struct FileSink {
    path: PathBuf,
    ports: Arc<[String]>,
    /// None after it could not be opened again.
    file: Option<File>,
    /// Lines that are being written, and how many records they are.
    lines: Vec<u8>,
    records: usize,
    /// Bytes of them that are written.
    written: usize,
}

impl FileSink {
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path, ports: Arc<[String]>) -> io::Result<FileSink> {
        let file = Some(open(path)?);
        Ok(FileSink { path: path.to_owned(), ports, file, lines: Vec::new(), records: 0, written: 0 })
    }
}

impl Sink for FileSink {
    fn write(&mut self, records: &[Record]) -> io::Result<usize> {
        if self.records == 0 {
            for record in records {
                json::write(record, &self.ports, &mut self.lines);
                self.records += 1;
                if self.lines.len() >= BYTES_AT_ONCE {
                    break;
                }
            }
        }
        let file = match &mut self.file {
            Some(file) => file,
            closed => closed.insert(open(&self.path)?),
        };
        while let Some(left) = self.lines.get(self.written..).filter(|left| !left.is_empty()) {
            match file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.lines.clear();
        self.written = 0;
        Ok(std::mem::take(&mut self.records))
    }

    fn reopen(&mut self) {
        // A line that the old file has a part of begins anew in the next one.
        let whole = self.lines[..self.written].iter().rposition(|byte| *byte == b'\n');
        self.written = whole.map_or(0, |at| at + 1);
        // If it fails, the next write tries again and tells why.
        self.file = open(&self.path).ok();
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Messages name the `--log`, which has the path.
    mmb_files::open_to_append(path, MODE).map_err(|error| error.without_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{audit, packet, record};

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).expect("a file");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    fn sink(path: &Path) -> FileSink {
        FileSink::open(path, Arc::new(["lan".to_owned(), "wan".to_owned()])).expect("opened")
    }

    #[test]
    fn records_are_lines_and_a_renamed_file_is_followed_by_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, old] = ["log.json", "log.json.1"].map(|name| folder.path().join(name));
        let mut sink = sink(&path);
        let records = [record(packet()), record(audit("apply"))];
        assert_eq!(sink.write(&records).expect("written"), 2);
        std::fs::rename(&path, &old).expect("renamed");
        assert_eq!(sink.write(&records[..1]).expect("written"), 1);
        assert_eq!((lines(&old).len(), path.exists()), (3, false), "it has the file open");
        sink.reopen();
        assert_eq!(sink.write(&records[1..]).expect("written"), 1);
        assert_eq!((lines(&old).len(), lines(&path).len()), (3, 1));
        assert_eq!(lines(&path)[0]["what"], "audit");
        assert_eq!((&lines(&old)[0]["what"], &lines(&old)[0]["in"]), (&"log".into(), &"lan".into()));
    }

    #[test]
    fn many_records_are_written_in_pieces() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.json");
        let mut sink = sink(&path);
        let records = vec![record(packet()); 1000];
        let mut done = 0;
        while done < records.len() {
            let written = sink.write(&records[done..]).expect("written");
            assert!((1..500).contains(&written), "{written}");
            done += written;
        }
        assert_eq!(lines(&path).len(), 1000);
    }

    #[test]
    fn a_full_disk_is_an_error_and_the_records_stay() {
        let mut sink = sink(Path::new("/dev/full"));
        let records = [record(packet()), record(packet())];
        for _ in 0..3 {
            let error = sink.write(&records).expect_err("no space");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        // The disk has room again.
        let folder = tempfile::tempdir().expect("a folder");
        sink.path = folder.path().join("log.json");
        sink.reopen();
        assert_eq!(sink.write(&records).expect("written"), 2);
        assert_eq!(lines(&sink.path).len(), 2);
    }

    #[test]
    fn a_line_that_was_cut_is_whole_in_the_next_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log.json");
        let mut sink = sink(&path);
        json::write(&record(packet()), &sink.ports, &mut sink.lines);
        let first = sink.lines.len();
        json::write(&record(audit("apply")), &sink.ports, &mut sink.lines);
        (sink.records, sink.written) = (2, first + 7);
        sink.reopen();
        assert_eq!(sink.write(&[]).expect("written"), 2);
        assert_eq!(lines(&path).iter().map(|line| &line["what"]).collect::<Vec<_>>(), ["audit"]);
    }

    #[test]
    fn a_link_in_the_place_of_a_renamed_file_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, victim] = ["log.json", "victim"].map(|name| folder.path().join(name));
        let mut sink = sink(&path);
        std::fs::write(&victim, "").expect("written");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&victim, &path).expect("linked");
        sink.reopen();
        let error = sink.write(&[record(packet())]).expect_err("a link");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(lines(&victim).len(), 0);
        // The records stay in the queue until the file can be opened.
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(sink.write(&[]).expect("written"), 1);
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        assert!(FileSink::open(Path::new("/nonexistent/log.json"), Arc::new([])).is_err());
    }
}
