//! Saves and loads the state of connections in pieces, since it may be longer than any request.

use super::{FollowingRequests, Responder, lock};
use crate::history::entry::{Entry, EntryAction};
use crate::memory::MemoryShortage;
use crate::state;
use mmb_engine::SavedState;
use mmb_protocol::answer::{Answer, AnswerEnd, CountLine, ErrorLine};
use mmb_protocol::{Request, hex, push_state};
use std::io::{self, Read, Write};

/// Bytes of a state in one line of an answer.
const LINE_BYTES: usize = 24 << 10;

/// A state is kept in memory until it is complete: memory is checked each time that so many bytes have arrived.
const CHECK_BYTES: u64 = 1 << 20;

impl Responder<'_> {
    pub(super) fn save_state(&mut self) -> io::Result<AnswerEnd> {
        let table = self.daemon().engine().connections();
        let daemon = self.context.daemon;
        let mut pieces =
            StateWriterLines { responder: self, piece: Vec::with_capacity(LINE_BYTES), written: Ok(()) };
        let saved = state::save(daemon, &table, &mut pieces).and_then(|connections| {
            pieces.flush()?;
            Ok(connections)
        });
        // A failure to write to the client is no failure of the workers.
        pieces.written?;
        match saved {
            Ok((connections, over)) => {
                if over > 0 {
                    self.send(&Answer::Note(ErrorLine::new(over_note(over))))?;
                }
                self.send(&Answer::Saved(CountLine { connections }))?;
                Ok(AnswerEnd::new(true))
            }
            Err(error) => self.refused(vec![ErrorLine::new(error.to_string())]),
        }
    }

    /// Answers `load-state`; with `verbose`, each connection that was left out has a line.
    pub(super) fn load_state(&mut self, verbose: bool) -> io::Result<AnswerEnd> {
        let table = self.daemon().engine().connections();
        let context = self.context;
        let check_memory = |bytes| lock(context.daemon).check_memory_for(bytes);
        let following = &mut *self.following;
        let mut pieces = StateReaderLines {
            following,
            check_memory: &check_memory,
            total: 0,
            checked: 0,
            piece: Vec::new(),
            read: 0,
            end: None,
        };
        let max = table.summary().max;
        let read = SavedState::read(&mut pieces, max);
        let has_ended = pieces.end.is_some();
        let message = match read {
            Ok(saved) => {
                let mut written = Ok(());
                let loaded = state::load(context.daemon, &table, &saved, &mut |left_out| {
                    if verbose && written.is_ok() {
                        written = self.send(&Answer::LeftOut(state::left_out_line(&left_out)));
                    }
                });
                written?;
                match loaded {
                    Ok(loaded) => {
                        let text = format!("load-state: {} connections", loaded.connections);
                        let entry = Entry::new(self.context.author, EntryAction::LoadState, text);
                        self.daemon().record(entry);
                        self.send(&Answer::Loaded(loaded))?;
                        return Ok(AnswerEnd::new(true));
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(message) => message,
        };
        let end = self.refused(vec![ErrorLine::new(message)])?;
        if !has_ended {
            // The client may have much more to send, and stops when it reads the error. The pieces that it has sent by then belong to the
            // state.
            self.out.flush()?;
            skip_rest(self.following);
        }
        Ok(end)
    }
}

/// Skips pieces up to the last one, or to another request.
fn skip_rest(following: &mut dyn FollowingRequests) {
    while matches!(following.next(), Some(Ok(Request::Piece(text))) if !text.is_empty()) {}
}

/// Writes a state as lines of an answer.
struct StateWriterLines<'r, 'a> {
    responder: &'r mut Responder<'a>,
    piece: Vec<u8>,
    /// The result of writing to the client.
    written: io::Result<()>,
}

impl Write for StateWriterLines<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(LINE_BYTES - self.piece.len());
        if taken == LINE_BYTES {
            self.line(&bytes[..taken])?;
            return Ok(taken);
        }
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == LINE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let mut piece = std::mem::take(&mut self.piece);
        let written = self.line(&piece);
        piece.clear();
        self.piece = piece;
        written
    }
}

impl StateWriterLines<'_, '_> {
    /// Writes a piece as a line.
    fn line(&mut self, piece: &[u8]) -> io::Result<()> {
        let Responder { line, out, .. } = &mut *self.responder;
        line.clear();
        push_state(piece, line);
        self.written = out.write_all(line);
        match &self.written {
            Ok(()) => Ok(()),
            Err(error) => Err(error.kind().into()),
        }
    }
}

/// Reads a state from the pieces that a client sends.
struct StateReaderLines<'r> {
    following: &'r mut dyn FollowingRequests,
    /// Checks that the process may take so many more bytes.
    check_memory: &'r dyn Fn(u64) -> Result<(), MemoryShortage>,
    /// Bytes that were read.
    total: u64,
    /// Bytes for which memory was checked.
    checked: u64,
    piece: Vec<u8>,
    /// Bytes of the piece that were read.
    read: usize,
    /// The last piece has arrived, or never will.
    end: Option<Result<(), &'static str>>,
}

impl StateReaderLines<'_> {
    fn next_piece(&mut self) {
        let piece = match self.following.next() {
            Some(Ok(Request::Piece(text))) => {
                hex::decode(&text).ok_or("a piece of a state is not hexadecimal")
            }
            Some(_) => Err("the state ends without its last piece"),
            None => Err("the rest of the state did not come"),
        };
        self.read = 0;
        match piece {
            Ok(piece) => {
                self.end = piece.is_empty().then_some(Ok(()));
                self.piece = piece;
            }
            Err(message) => (self.piece, self.end) = (Vec::new(), Some(Err(message))),
        }
    }

    /// Checks that there is memory for the next bytes.
    fn check_next(&mut self) -> io::Result<()> {
        if self.total >= self.checked {
            (self.check_memory)(2 * CHECK_BYTES).map_err(io::Error::other)?;
            self.checked = self.total + CHECK_BYTES;
        }
        Ok(())
    }

    fn ended(&self) -> io::Result<usize> {
        match self.end {
            Some(Err(message)) => Err(io::Error::new(io::ErrorKind::InvalidData, message)),
            _ => Ok(0),
        }
    }
}

impl Read for StateReaderLines<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            if self.end.is_some() {
                return self.ended();
            }
            self.next_piece();
        }
        self.check_next()?;
        let rest = &self.piece[self.read..];
        let taken = rest.len().min(into.len());
        self.total += taken as u64;
        into[..taken].copy_from_slice(&rest[..taken]);
        self.read += taken;
        Ok(taken)
    }
}

/// Says how many connections of a state cannot go on.
fn over_note(connections: u64) -> String {
    let whose = if connections == 1 { "its" } else { "their" };
    format!(
        "{connections} of them will be closed: edits of {whose} bytes are in flight, or a rule has ended {whose} traffic"
    )
}
