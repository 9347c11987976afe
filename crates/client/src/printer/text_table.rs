//! Aligned tables. The first rows determine the column widths, so that a table of a million rows is printed as it arrives.

use crate::screen::Screen;

/// Rows that determine the widths, before the first row is printed.
const MEASURED_ROWS: usize = 1_000;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Flush left, for words.
    Left,
    /// Flush right, for numbers.
    Right,
}

/// A table while it is printed.
#[derive(Debug)]
pub(crate) struct TextTable {
    columns: Vec<(&'static str, Align)>,
    widths: Vec<usize>,
    pending: Vec<Vec<String>>,
    heading_printed: bool,
}

impl TextTable {
    /// Creates a table with these columns.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> TextTable {
        let widths = columns.iter().map(|(name, _)| name.len()).collect();
        TextTable { columns: columns.to_vec(), widths, pending: Vec::new(), heading_printed: false }
    }

    /// Prints a row, or keeps it until the column widths are known.
    pub(crate) fn row(&mut self, screen: &mut Screen<'_>, cells: Vec<String>) {
        self.pending.push(cells);
        if self.heading_printed || self.pending.len() >= MEASURED_ROWS {
            self.flush(screen);
        }
    }

    /// Prints the remaining rows, and a last row of totals if there is one.
    pub(crate) fn end(mut self, screen: &mut Screen<'_>, totals: Option<Vec<String>>) {
        if let Some(totals) = &totals {
            self.widen(totals);
        }
        self.flush(screen);
        if let Some(totals) = totals {
            let line = self.line(&totals);
            screen.bold(&line);
            screen.text("\n");
        }
    }

    fn flush(&mut self, screen: &mut Screen<'_>) {
        let pending = std::mem::take(&mut self.pending);
        if !self.heading_printed {
            pending.iter().for_each(|cells| self.widen(cells));
            let names: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
            let line = self.line(&names);
            screen.heading(&line);
            screen.text("\n");
            self.heading_printed = true;
        }
        for cells in pending {
            let mut line = self.line(&cells);
            line.push('\n');
            screen.text(&line);
        }
    }

    fn widen(&mut self, cells: &[String]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::with_capacity(cells.iter().map(|cell| cell.len() + 8).sum());
        for ((cell, width), (_, align)) in cells.iter().zip(&self.widths).zip(&self.columns) {
            let gap = width.saturating_sub(cell.chars().count());
            let (before, after) = if *align == Align::Right { (gap, 0) } else { (0, gap) };
            line.extend(std::iter::repeat_n(' ', before));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', after + 2));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::shown;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(&[("ID", Align::Right), ("NAME", Align::Left), ("N", Align::Right)]);
        let text = shown(|screen| {
            table.row(screen, row(&["1", "é", "10"]));
            table.row(screen, row(&["200", "longer", "1"]));
            table.end(screen, Some(row(&["", "", "1000"])));
        });
        let expected = " ID  NAME       N\n  1  é         10\n200  longer     1\n             1000\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_long_table_is_printed_as_it_arrives() {
        let mut table = TextTable::new(&[("N", Align::Right)]);
        let text = shown(|screen| {
            for n in 0..MEASURED_ROWS + 5 {
                table.row(screen, vec![n.to_string()]);
            }
            assert!(table.pending.is_empty());
            table.end(screen, None);
        });
        assert_eq!(text.lines().count(), MEASURED_ROWS + 6);
    }
}
