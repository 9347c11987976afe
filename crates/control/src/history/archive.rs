//! The versions of the policy that can be restored, and the entries that tell about them.
//!
//! Versions are kept in [`Segment`]s, the last of which is open: it gets the differences to come, until a whole policy takes no more
//! bytes than they do. The oldest segments are deleted when there are more versions or bytes than the limits allow. Without a
//! directory everything is in memory, and the first version is written when there is a second one. Of the versions that could not be
//! written, the last ones stay in memory.

use super::entry::{Entry, EntryContent, HistoryError};
use super::mark;
use super::record::{EntryHeader, RecordContent, apply_line, counts, difference, unix_ms, whole};
use super::segment::{Segment, SegmentSize, digest, first_of, is_digest};
use crate::author::UserNames;
use mmb_files::Directory;
use mmb_policy::Policy;
use rustix::fs::FileType;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The file by which one daemon keeps others from its directory.
pub(super) const LOCK: &str = "lock";

/// Files of a directory that hold no versions.
const OTHER_FILES: [&str; 2] = [LOCK, mark::FILE];

/// Bytes of differences that a segment has at least, before it is closed.
const MIN_SEGMENT_BYTES: u64 = 1 << 20;

/// Versions that stay in memory because they could not be written. They share what is the same with the policy in force.
const MAX_UNWRITTEN: usize = 4;

/// The pause after a write has failed.
const PAUSE: Duration = Duration::from_secs(10);

/// What the history keeps at most.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Bytes of the stored versions.
    pub bytes: u64,
    /// Versions; a segment is kept if some of it is needed for so many.
    pub versions: u64,
    /// Entries that are listed.
    pub entries: usize,
}

impl HistoryLimits {
    /// Of a directory.
    pub const DIRECTORY: HistoryLimits = HistoryLimits { bytes: 128 << 20, versions: 1000, entries: 2000 };
    /// Without one.
    pub const MEMORY: HistoryLimits = HistoryLimits { bytes: 16 << 20, ..HistoryLimits::DIRECTORY };
}

#[derive(Debug)]
pub(super) struct Archive {
    directory: Option<Arc<Directory>>,
    limits: HistoryLimits,
    /// The oldest first.
    segments: VecDeque<Segment>,
    /// The last segment takes differences.
    is_open: bool,
    /// The first version, until it is written.
    base: Option<KeptVersion>,
    /// The last versions that could not be written, the oldest first.
    unwritten: VecDeque<KeptVersion>,
    entries: VecDeque<EntryHeader>,
    names: UserNames,
    /// No whole policy of so many rules is written before this time: the last one could not be.
    failed: Option<(Instant, usize)>,
    /// Messages about what could not be read or written.
    notes: Vec<String>,
}

/// A version in memory.
#[derive(Clone, Debug)]
struct KeptVersion {
    header: EntryHeader,
    policy: Arc<Policy>,
}

/// What is to be written behind the last segment.
#[derive(Debug, Default)]
struct PendingText {
    text: Vec<u8>,
    /// The versions in it.
    versions: Vec<KeptVersion>,
}

impl Archive {
    pub(super) fn in_memory(limits: HistoryLimits) -> Archive {
        Archive {
            directory: None,
            limits,
            segments: VecDeque::new(),
            is_open: false,
            base: None,
            unwritten: VecDeque::new(),
            entries: VecDeque::new(),
            names: UserNames::default(),
            failed: None,
            notes: Vec::new(),
        }
    }

    /// Opens the files of a directory, and reads the newest one. Returns also the last version.
    pub(super) fn open(directory: &Arc<Directory>, limits: HistoryLimits) -> io::Result<(Archive, u64)> {
        let mut archive = Archive { directory: Some(Arc::clone(directory)), ..Archive::in_memory(limits) };
        let mut found = Vec::new();
        for file in directory.names()? {
            let name = file.to_string_lossy();
            let status = directory.status(&file)?;
            match first_of(&name) {
                Some(first) if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile => {
                    found.push(Segment::unread(directory, &file, first, status.st_size as u64));
                }
                _ if name.starts_with(".policy-") && name.ends_with(".tmp") => {
                    let _ = directory.remove(&file);
                }
                _ if OTHER_FILES.contains(&&*name) => {}
                _ => archive.notes.push(format!(
                    "{}: this is no file of the history; it is left alone",
                    directory.path().join(&file).display()
                )),
            }
        }
        found.sort_unstable_by_key(|segment| segment.first);
        archive.segments = found.into();
        let newest = archive.segments.pop_back();
        let last_name = newest.as_ref().map_or(0, |segment| segment.first);
        archive.is_open = newest.is_some_and(|newest| archive.read_segment(newest));
        let last = archive.entries.iter().filter_map(|entry| entry.version).max().unwrap_or_default();
        Ok((archive, last.max(last_name)))
    }

    /// Reads the entries of the segments that [`Archive::open`] has left unread.
    pub(super) fn read_older(&mut self) {
        let newest = std::mem::take(&mut self.entries);
        let newest_segment = self.segments.pop_back();
        for segment in std::mem::take(&mut self.segments) {
            self.read_segment(segment);
        }
        self.segments.extend(newest_segment);
        self.entries.extend(newest);
        self.forget_entries();
    }

    /// Reads the entries of a segment and appends both; returns whether all of it is understood. One that begins with no version is left out.
    fn read_segment(&mut self, mut segment: Segment) -> bool {
        let mut headers: Vec<EntryHeader> = Vec::new();
        let (mut fault, mut size) = (None, SegmentSize::default());
        let read = segment.read(&mut |line| {
            size.add(line);
            match EntryHeader::read(line) {
                Some(Ok(header)) => headers.push(header),
                Some(Err(error)) => fault = Some(error.to_string()),
                None => {}
            }
            fault.is_none()
                && headers.first().is_some_and(|first| first.content == Some(RecordContent::Whole))
        });
        let fault = fault.or(read.err().map(|error| error.to_string()));
        let is_whole = headers.first().is_some_and(|first| {
            first.version == Some(segment.first) && first.content == Some(RecordContent::Whole)
        });
        if !is_whole {
            self.notes.push(format!("{}: this is no history of policies; it is left alone", segment.name()));
            return false;
        }
        segment.size = size;
        segment.versions = headers.iter().filter(|header| is_new(header)).count() as u64;
        if let Some(fault) = &fault {
            let kept = headers.len();
            self.notes.push(format!(
                "{}: broken behind entry {kept}, which is the last one that is used: {fault}",
                segment.name()
            ));
        }
        self.entries.extend(headers);
        self.forget_entries();
        self.segments.push_back(segment);
        fault.is_none()
    }

    /// Adds entries, in the order in which they happened. Returns their headers.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> Vec<EntryHeader> {
        let mut headers = Vec::with_capacity(entries.len());
        let mut pending = PendingText::default();
        for entry in entries {
            let mut header = EntryHeader::new(&entry, &mut self.names);
            self.add(&mut header, entry.content, &mut pending);
            self.entries.push_back(header.clone());
            headers.push(header);
        }
        self.write_pending(&mut pending);
        self.prune();
        self.forget_entries();
        headers
    }

    fn add(&mut self, header: &mut EntryHeader, content: EntryContent, pending: &mut PendingText) {
        match content {
            EntryContent::None => {}
            EntryContent::Start(policy) if self.directory.is_none() => {
                header.content = Some(RecordContent::Whole);
                self.base = Some(KeptVersion { header: header.clone(), policy });
                return;
            }
            EntryContent::Start(policy) => {
                let newest = self.segments.back().filter(|newest| self.is_open && newest.versions == 1);
                if newest.is_some_and(|newest| newest.size.digest == digest(whole(&policy))) {
                    header.content = Some(RecordContent::Same);
                } else {
                    return self.begin_segment(header, policy, pending);
                }
            }
            EntryContent::Merged => header.content = Some(RecordContent::Merged),
            EntryContent::Change(before, after) => {
                (header.added, header.removed) = counts(&before, &after);
                self.write_base(pending);
                let mut lines = String::new();
                let max = self.max_difference(pending.text.len());
                if !self.is_open || !difference(&before, &after, max, &mut lines) {
                    return self.begin_segment(header, after, pending);
                }
                header.content = Some(RecordContent::Difference);
                // A vector takes everything.
                let _ = header.write(&mut pending.text);
                pending.text.extend_from_slice(lines.as_bytes());
                pending.versions.push(KeptVersion { header: header.clone(), policy: after });
                return;
            }
        }
        if self.is_open {
            let _ = header.write(&mut pending.text);
        }
    }

    /// Writes the first version, if it was not written yet.
    fn write_base(&mut self, pending: &mut PendingText) {
        let Some(KeptVersion { header: mut base, policy }) = self.base.take() else { return };
        self.begin_segment(&mut base, policy, pending);
        self.list_again(&base);
    }

    /// Replaces a listed entry, whose content is another one than was thought.
    fn list_again(&mut self, header: &EntryHeader) {
        let listed = self.entries.iter_mut().find(|entry| entry.version == header.version);
        if let Some(listed) = listed {
            *listed = header.clone();
        }
    }

    /// The bytes of a difference up to which it is better than a whole policy, behind text that is not written yet.
    fn max_difference(&self, unwritten: usize) -> usize {
        let Some(newest) = self.segments.back() else { return 0 };
        let max =
            newest.size.whole.max(MIN_SEGMENT_BYTES).saturating_sub(newest.size.behind + unwritten as u64);
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Begins a segment with a version.
    fn begin_segment(&mut self, header: &mut EntryHeader, policy: Arc<Policy>, pending: &mut PendingText) {
        self.write_pending(pending);
        self.is_open = false;
        let rules = policy.rules.len();
        let is_paused =
            self.failed.is_some_and(|(until, failed)| Instant::now() < until && rules >= failed / 10 * 9);
        header.content = Some(RecordContent::Whole);
        let Some(first) = header.version.filter(|_| !is_paused) else { return self.lose(header, policy) };
        match Segment::create(self.directory.as_ref(), first, header, whole(&policy), self.limits.bytes) {
            Ok(segment) => {
                self.segments.push_back(segment);
                (self.is_open, self.failed) = (true, None);
            }
            Err(error) => {
                self.lose(header, policy);
                self.notes.push(format!("version {first} of the policy is not written: {error}"));
                // A policy that is too large stays so.
                let pause = if error.kind() == io::ErrorKind::FileTooLarge { PAUSE * 360 } else { PAUSE };
                self.failed = Some((Instant::now() + pause, rules));
            }
        }
    }

    /// Keeps a version in memory that could not be written, in the place of the oldest such one.
    fn lose(&mut self, header: &mut EntryHeader, policy: Arc<Policy>) {
        header.content = Some(RecordContent::Lost);
        self.unwritten.push_back(KeptVersion { header: header.clone(), policy });
        let extra = self.unwritten.len().saturating_sub(MAX_UNWRITTEN);
        self.unwritten.drain(..extra);
    }

    /// Writes differences behind the last segment.
    fn write_pending(&mut self, pending: &mut PendingText) {
        let PendingText { text, versions } = std::mem::take(pending);
        let Some(newest) = self.segments.back_mut().filter(|_| !text.is_empty()) else { return };
        let Err(error) = newest.append(&text) else {
            newest.versions += versions.len() as u64;
            return;
        };
        self.is_open = false;
        self.notes.push(format!("changes of the policy are not written: {}: {error}", newest.name()));
        for KeptVersion { mut header, policy } in versions {
            self.lose(&mut header, policy);
            self.list_again(&header);
        }
    }

    /// Deletes the oldest segments, as far as the limits ask for it.
    fn prune(&mut self) {
        let mut versions: u64 = self.segments.iter().map(|segment| segment.versions).sum();
        let mut bytes: u64 = self.segments.iter().map(|segment| segment.stored).sum();
        while let [oldest, _, ..] = self.segments.make_contiguous()
            && (bytes > self.limits.bytes || versions - oldest.versions >= self.limits.versions)
        {
            versions -= oldest.versions;
            bytes -= oldest.stored;
            if let Some(oldest) = self.segments.pop_front() {
                oldest.delete();
            }
        }
        // The next version begins a segment, so that this one can go.
        if bytes > self.limits.bytes {
            self.is_open = false;
        }
    }

    fn forget_entries(&mut self) {
        let extra = self.entries.len().saturating_sub(self.limits.entries);
        self.entries.drain(..extra);
    }

    /// The entries, the oldest first, and whether the policy of each can be restored.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&EntryHeader, bool)> {
        let oldest = self.segments.front().map_or(u64::MAX, |segment| segment.first);
        self.entries.iter().map(move |header| {
            let is_kept = header.version.is_some_and(|version| {
                let is_written = header.content.is_some_and(RecordContent::is_whole_version);
                (is_written && version >= oldest) || self.in_memory_version(version).is_some()
            });
            (header, is_kept)
        })
    }

    /// A version that is in memory because it is not written yet, or could not be.
    fn in_memory_version(&self, version: u64) -> Option<&KeptVersion> {
        self.base.iter().chain(&self.unwritten).find(|kept| kept.header.version == Some(version))
    }

    /// The policy of a version, without the elements of sets that have expired since.
    pub(super) fn policy(&self, version: u64) -> Result<Policy, HistoryError> {
        let mut policy = self.policy_as_it_was(version)?;
        let now_ms = unix_ms(SystemTime::now());
        if let Some(KeptVersion { header, .. }) = self.in_memory_version(version) {
            let passed_ms = header.unix_ms().map_or(0, |at_ms| now_ms.saturating_sub(at_ms));
            policy.now_ms = policy.now_ms.saturating_add(passed_ms);
        } else {
            policy.now_ms = now_ms;
        }
        policy.expire(policy.now_ms);
        Ok(policy)
    }

    pub(super) fn is_in_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// The last version before another one that is in a file, of those that are known without reading all files.
    pub(super) fn written_before(&self, version: u64) -> Option<u64> {
        let listed = self.entries().filter(|(_, is_kept)| *is_kept).filter_map(|(header, _)| header.version);
        let firsts = self.segments.iter().map(|segment| segment.first);
        listed.chain(firsts).filter(|known| *known < version).max()
    }

    /// Whether a version that is listed is in a file.
    pub(super) fn is_written(&self, version: u64) -> bool {
        let is_kept = self.entries().any(|(header, is_kept)| is_kept && header.version == Some(version));
        is_kept && self.in_memory_version(version).is_none()
    }

    /// The policy of a version with all elements of its sets. They expire by the clock of the daemon if the version is in memory, otherwise
    /// by that of the system.
    pub(super) fn policy_as_it_was(&self, version: u64) -> Result<Policy, HistoryError> {
        if let Some(KeptVersion { policy, .. }) = self.in_memory_version(version) {
            return Ok(Policy::clone(policy));
        }
        let unknown = || HistoryError::NotKept(version);
        let listed = self.entries.iter().find(|header| header.version == Some(version));
        if listed.is_some_and(|header| !header.content.is_some_and(RecordContent::is_whole_version)) {
            return Err(unknown());
        }
        let segment = self.segments.iter().rev().find(|segment| segment.first <= version);
        let segment = segment.ok_or_else(unknown)?;
        let (mut policy, mut at, mut content, mut fault) = (Policy::default(), 0, None, None);
        let read = segment.read(&mut |line| {
            let done = match EntryHeader::read(line) {
                None if is_digest(line) => Ok(true),
                None => apply_line(&mut policy, line).map(|()| true),
                Some(Ok(header)) => {
                    let next = header.version.unwrap_or(at);
                    let goes_on = next <= version;
                    if goes_on {
                        // Elements stay until the end, also those that have expired: the change that follows may take them away.
                        policy.now_ms = header.unix_ms().unwrap_or(policy.now_ms);
                        at = next;
                        content = header.content.or(content);
                    }
                    Ok(goes_on)
                }
                Some(Err(error)) => Err(error),
            };
            done.unwrap_or_else(|error| {
                fault = Some(error.to_string());
                false
            })
        });
        let broken = |reason| HistoryError::Broken { version, file: segment.name(), reason };
        match (fault, read) {
            (Some(reason), _) => Err(broken(reason)),
            // The broken place may be in the version itself, behind its header.
            (None, Err(error)) => Err(broken(error.to_string())),
            (None, _) if at == version && content.is_some_and(RecordContent::is_whole_version) => Ok(policy),
            (None, _) => Err(unknown()),
        }
    }

    /// Takes the messages about what could not be read or written.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

/// Whether an entry has made a version that differs from the one before it.
fn is_new(header: &EntryHeader) -> bool {
    matches!(header.content, Some(RecordContent::Whole | RecordContent::Difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Author;
    use crate::history::entry::EntryAction;
    use mmb_language::parse_policy;
    use std::fs;
    use std::path::Path;

    fn open(path: &Path) -> (Archive, u64) {
        let directory = Arc::new(Directory::open(path).expect("opens"));
        Archive::open(&directory, HistoryLimits::DIRECTORY).expect("opens")
    }

    /// A version with so many rules.
    fn version(version: u64) -> Arc<Policy> {
        let lines: String = (0..version).map(|port| format!("add tcp-dport {port} drop\n")).collect();
        Arc::new(parse_policy(&lines).expect("a policy").0)
    }

    fn append(archive: &mut Archive, number: u64) {
        let content = match number {
            1 => EntryContent::Start(version(1)),
            _ => EntryContent::Change(version(number - 1), version(number)),
        };
        let entry = Entry::new(Author::default(), EntryAction::Change, String::new());
        archive.append(vec![Entry { version: Some(number), content, ..entry }]);
    }

    #[test]
    fn the_last_versions_that_the_disk_refuses_stay_in_memory() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut archive, _) = open(directory.path());
        (1..=2).for_each(|number| append(&mut archive, number));
        // The segment cannot be appended to, and no other one can be created.
        let [segment, elsewhere] =
            ["policy-0000000001.gz", "elsewhere"].map(|name| directory.path().join(name));
        let temporary = |number| directory.path().join(format!(".policy-{number:010}.gz.tmp"));
        fs::rename(&segment, &elsewhere).expect("is moved");
        (3..=8).for_each(|number| fs::create_dir(temporary(number)).expect("is made"));
        (3..=8).for_each(|number| append(&mut archive, number));
        (3..=8).for_each(|number| fs::remove_dir(temporary(number)).expect("is removed"));
        fs::rename(&elsewhere, &segment).expect("is moved");

        let kept: Vec<_> = archive.entries().filter(|(_, is_kept)| *is_kept).collect();
        let kept: Vec<_> = kept.iter().filter_map(|(header, _)| header.version).collect();
        assert_eq!(kept, [1, 2, 5, 6, 7, 8]);
        for number in kept {
            assert_eq!(archive.policy(number).expect("is kept"), *version(number), "{number}");
        }
        for number in [3, 4, 9] {
            let error = archive.policy(number).expect_err("is not kept");
            assert!(matches!(error, HistoryError::NotKept(lost) if lost == number), "{error}");
        }
        assert_eq!(archive.take_notes().len(), 2, "the pause tells nothing more");
        // When the disk takes versions again, they are written.
        archive.failed = None;
        append(&mut archive, 9);
        let (again, last) = open(directory.path());
        assert_eq!((last, again.policy(9).expect("is kept").rules.len()), (9, 9));
    }

    #[test]
    fn a_part_of_a_change_that_the_disk_refused_breaks_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut archive, _) = open(directory.path());
        append(&mut archive, 1);
        let file = fs::read_dir(directory.path()).expect("reads").next().expect("a file").expect("reads");
        let mut content = fs::read(file.path()).expect("reads");
        content.extend_from_within(..20);
        fs::write(file.path(), content).expect("writes");
        assert_eq!(archive.policy(1).expect("is kept").rules.len(), 1);
    }
}
