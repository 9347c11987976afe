//! A window on a stream: bytes are looked at in place, then passed.

use std::io::{self, Read};

/// Bytes asked for at once from the source.
const CHUNK: usize = 256 << 10;

/// A window that slides over a source. It grows to what its user asks for, and only as far as bytes really come: the
/// user bounds what it asks for.
pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    /// The window is `buffer[start..end]`.
    start: usize,
    end: usize,
    /// The offset of the window in the stream.
    offset: u64,
    ended: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Input { source, buffer: vec![0; CHUNK], start: 0, end: 0, offset: 0, ended: false }
    }

    /// The offset of the window in the stream.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Makes the window at least `want` bytes wide if the stream has them; returns its width, at most `want`.
    #[inline]
    pub(super) fn available(&mut self, want: usize) -> io::Result<usize> {
        if self.end - self.start < want {
            self.fill(want)?;
        }
        Ok(want.min(self.end - self.start))
    }

    #[cold]
    fn fill(&mut self, want: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < want && !self.ended {
            if self.end == self.buffer.len() {
                self.buffer.resize((self.end * 2).min(want.max(CHUNK)), 0);
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first `len` bytes of the window, fewer if it is narrower.
    #[inline]
    pub(super) fn peek(&self, len: usize) -> &[u8] {
        &self.buffer[self.start..self.end.min(self.start + len)]
    }

    /// Like [`Input::peek`], and passes them.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> &[u8] {
        let start = self.start;
        let end = self.end.min(start + len);
        self.start = end;
        self.offset += (end - start) as u64;
        &self.buffer[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, and an interruption before each.
    struct Drip<'a>(&'a [u8], bool);

    impl Read for Drip<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = self.0.len().min(1).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn a_dripping_source_is_read_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut input = Input::new(Drip(&bytes, false));
        assert_eq!(input.available(3).unwrap(), 3);
        assert_eq!(input.take(2), &[0, 1]);
        assert_eq!(input.offset(), 2);
        assert_eq!(input.available(200).unwrap(), 98);
        assert_eq!(input.take(200), &bytes[2..]);
        assert_eq!(input.available(1).unwrap(), 0);
    }

    #[test]
    fn the_window_grows_only_as_bytes_come() {
        let bytes = vec![7; CHUNK + 1];
        let mut input = Input::new(&bytes[..]);
        assert_eq!(input.available(1 << 40).unwrap(), CHUNK + 1);
        assert!(input.buffer.len() <= 2 * CHUNK);
    }
}
