//! The versions of the policy that can be restored, and the entries that tell about them.
//!
//! Versions are kept in [`Segment`]s, the last of which is open: it gets the differences to come, until a whole policy takes no more
//! bytes than they do. The oldest segments are deleted when there are more versions or bytes than the limits allow. Without a
//! directory everything is in memory, and the first version is written when there is a second one.

use super::entry::{Entry, EntryContent, HistoryError};
use super::mark;
use super::record::{EntryHeader, RecordContent, apply_line, counts, difference, unix_ms, whole};
use super::segment::{Segment, SegmentSize, digest, first_of, is_digest};
use crate::author::UserNames;
use mmb_policy::Policy;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The file by which one daemon keeps others from its directory.
pub(super) const LOCK: &str = "lock";

/// Files of a directory that hold no versions.
const OTHER_FILES: [&str; 2] = [LOCK, mark::FILE];

/// Bytes of differences that a segment has at least, before it is closed.
const FEW_BYTES: u64 = 1 << 20;

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
    directory: Option<PathBuf>,
    limits: HistoryLimits,
    /// The oldest first.
    segments: VecDeque<Segment>,
    /// The last segment takes differences.
    is_open: bool,
    /// The first version, until it is written.
    base: Option<(EntryHeader, Arc<Policy>)>,
    entries: VecDeque<EntryHeader>,
    names: UserNames,
    /// No whole policy of so many rules is written before this time: the last one could not be.
    failed: Option<(Instant, usize)>,
    /// Messages about what could not be read or written.
    notes: Vec<String>,
}

impl Archive {
    pub(super) fn in_memory(limits: HistoryLimits) -> Archive {
        Archive {
            directory: None,
            limits,
            segments: VecDeque::new(),
            is_open: false,
            base: None,
            entries: VecDeque::new(),
            names: UserNames::default(),
            failed: None,
            notes: Vec::new(),
        }
    }

    /// Opens the files of a directory, and reads the newest one. Returns also the last version.
    pub(super) fn open(directory: &Path, limits: HistoryLimits) -> io::Result<(Archive, u64)> {
        let mut archive = Archive { directory: Some(directory.to_owned()), ..Archive::in_memory(limits) };
        let mut found = Vec::new();
        for file in fs::read_dir(directory)? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            match first_of(&name) {
                Some(first) if file.file_type()?.is_file() => {
                    found.push(Segment::unread(file.path(), first, file.metadata()?.len()));
                }
                _ if name.starts_with(".policy-") && name.ends_with(".tmp") => {
                    let _ = fs::remove_file(file.path());
                }
                _ if OTHER_FILES.contains(&name.as_str()) => {}
                _ => archive.notes.push(format!(
                    "{}: this is no file of the history; it is left alone",
                    file.path().display()
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
        let mut text = Vec::new();
        for entry in entries {
            let mut header = EntryHeader::new(&entry, &mut self.names);
            self.add(&mut header, entry.content, &mut text);
            self.entries.push_back(header.clone());
            headers.push(header);
        }
        self.write_text(&mut text);
        self.prune();
        self.forget_entries();
        headers
    }

    fn add(&mut self, header: &mut EntryHeader, content: EntryContent, text: &mut Vec<u8>) {
        match content {
            EntryContent::None => {}
            EntryContent::Start(policy) if self.directory.is_none() => {
                header.content = Some(RecordContent::Whole);
                self.base = Some((header.clone(), policy));
                return;
            }
            EntryContent::Start(policy) => {
                let newest = self.segments.back().filter(|newest| self.is_open && newest.versions == 1);
                if newest.is_some_and(|newest| newest.size.digest == digest(whole(&policy))) {
                    header.content = Some(RecordContent::Same);
                } else {
                    return self.begin_segment(header, &policy, text);
                }
            }
            EntryContent::Merged => header.content = Some(RecordContent::Merged),
            EntryContent::Change(before, after) => {
                (header.added, header.removed) = counts(&before, &after);
                self.write_base(text);
                let mut lines = String::new();
                let most = self.most_behind(text.len());
                if !self.is_open || !difference(&before, &after, most, &mut lines) {
                    return self.begin_segment(header, &after, text);
                }
                header.content = Some(RecordContent::Difference);
                // A vector takes everything.
                let _ = header.write(text);
                text.extend_from_slice(lines.as_bytes());
                if let Some(newest) = self.segments.back_mut() {
                    newest.versions += 1;
                }
                return;
            }
        }
        if self.is_open {
            let _ = header.write(text);
        }
    }

    /// Writes the first version, if it was not written yet.
    fn write_base(&mut self, text: &mut Vec<u8>) {
        let Some((mut base, policy)) = self.base.take() else { return };
        self.begin_segment(&mut base, &policy, text);
        let listed = self.entries.iter_mut().find(|entry| entry.version == base.version);
        if let Some(listed) = listed {
            *listed = base;
        }
    }

    /// The bytes of a difference up to which it is better than a whole policy, behind text that is not written yet.
    fn most_behind(&self, unwritten: usize) -> usize {
        let Some(newest) = self.segments.back() else { return 0 };
        let most = newest.size.whole.max(FEW_BYTES).saturating_sub(newest.size.behind + unwritten as u64);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Begins a segment with a version.
    fn begin_segment(&mut self, header: &mut EntryHeader, policy: &Policy, text: &mut Vec<u8>) {
        self.write_text(text);
        self.is_open = false;
        let rules = policy.rules.len();
        let is_paused =
            self.failed.is_some_and(|(until, failed)| Instant::now() < until && rules >= failed / 10 * 9);
        header.content = Some(RecordContent::Whole);
        let Some(first) = header.version.filter(|_| !is_paused) else {
            header.content = Some(RecordContent::Lost);
            return;
        };
        match Segment::create(self.directory.as_deref(), first, header, whole(policy), self.limits.bytes) {
            Ok(segment) => {
                self.segments.push_back(segment);
                (self.is_open, self.failed) = (true, None);
            }
            Err(error) => {
                header.content = Some(RecordContent::Lost);
                self.notes.push(format!("version {first} of the policy is not kept: {error}"));
                // A policy that is too large stays so.
                let pause = if error.kind() == io::ErrorKind::FileTooLarge { PAUSE * 360 } else { PAUSE };
                self.failed = Some((Instant::now() + pause, rules));
            }
        }
    }

    /// Writes differences behind the last segment.
    fn write_text(&mut self, text: &mut Vec<u8>) {
        let written = std::mem::take(text);
        let Some(newest) = self.segments.back_mut().filter(|_| !written.is_empty()) else { return };
        if let Err(error) = newest.append(&written) {
            // What of it was written is left out by readers.
            self.is_open = false;
            self.notes.push(format!("changes of the policy are not kept: {}: {error}", newest.name()));
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
        let has_base = self.base.is_some();
        self.entries.iter().map(move |header| {
            let is_kept = header.content.is_some_and(RecordContent::is_whole_version);
            let is_stored = header.version.is_some_and(|version| version >= oldest);
            (header, is_kept && (is_stored || has_base))
        })
    }

    /// The policy of a version.
    pub(super) fn policy(&self, version: u64) -> Result<Policy, HistoryError> {
        let now_ms = unix_ms(SystemTime::now());
        if let Some((header, policy)) =
            self.base.as_ref().filter(|(header, _)| header.version == Some(version))
        {
            let mut policy = Policy::clone(policy);
            let passed_ms = header.unix_ms().map_or(0, |at_ms| now_ms.saturating_sub(at_ms));
            policy.now_ms = policy.now_ms.saturating_add(passed_ms);
            policy.expire(policy.now_ms);
            return Ok(policy);
        }
        let unknown = HistoryError::NotKept(version);
        let segment = self.segments.iter().rev().find(|segment| segment.first <= version).ok_or(unknown)?;
        let (mut policy, mut at, mut content, mut fault) = (Policy::default(), 0, None, None);
        let read = segment.read(&mut |line| {
            let done = match EntryHeader::read(line) {
                None if is_digest(line) => Ok(true),
                None => apply_line(&mut policy, line).map(|()| true),
                Some(Ok(header)) => {
                    let next = header.version.unwrap_or(at);
                    let goes_on = next <= version;
                    if goes_on {
                        if let Some(at_ms) = header.unix_ms() {
                            policy.expire(at_ms);
                            policy.now_ms = at_ms;
                        }
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
            (None, _) if at == version && content.is_some_and(RecordContent::is_whole_version) => {
                policy.expire(now_ms);
                policy.now_ms = now_ms;
                Ok(policy)
            }
            (None, _) => Err(HistoryError::NotKept(version)),
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
