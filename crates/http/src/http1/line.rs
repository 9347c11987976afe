//! Line ends.

/// Returns a line without its line end, CRLF or LF.
pub(crate) fn line_content(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
