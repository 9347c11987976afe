//! The page that `mmb top` draws: ports and workers above, drops beside them, and a list of rules or connections.

use mmb_client::rate_text as number;
use mmb_policy::printable::printable;
use mmb_protocol::answer::{Rate, RateLines};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

/// The keys, in the last line.
const KEYS: &str = " q quit   space pause   tab rules or connections   ↑ ↓ scroll";

/// The rates of a second, or why there are none.
pub(super) type Told = Result<RateLines, String>;

/// What the list below shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Rules,
    Connections,
}

/// The last rates, and how they are shown.
#[derive(Debug)]
pub(super) struct View {
    rates: RateLines,
    /// Why there are no newer ones.
    problem: Option<String>,
    paused: bool,
    list: List,
    /// Rows of the list above the first one that is shown.
    above: usize,
}

impl View {
    pub(super) fn new(rates: RateLines) -> View {
        View { rates, problem: None, paused: false, list: List::Rules, above: 0 }
    }

    /// Takes new rates.
    pub(super) fn update(&mut self, told: Told) {
        match told {
            _ if self.paused => {}
            Ok(rates) => (self.rates, self.problem) = (rates, None),
            Err(problem) => self.problem = Some(problem),
        }
    }

    pub(super) fn toggle_pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(super) fn switch_list(&mut self) {
        self.list = if self.list == List::Rules { List::Connections } else { List::Rules };
        self.above = 0;
    }

    /// Scrolls the list by rows.
    pub(super) fn scroll(&mut self, rows: isize) {
        let rows_of_list = match self.list {
            List::Rules => self.rates.rules.len(),
            List::Connections => self.rates.top_connections.len(),
        };
        self.above = self.above.saturating_add_signed(rows).min(rows_of_list.saturating_sub(1));
    }

    /// Draws the page.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let upper = self.rates.ports.len().max(self.rates.workers.len()).max(3) as u16 + 3;
        let [head, top, below, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(upper),
            Constraint::Min(4),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let [ports, workers, drops] =
            Layout::horizontal([Constraint::Fill(5), Constraint::Fill(4), Constraint::Fill(4)]).areas(top);
        frame.render_widget(self.head(), head);
        self.ports(frame, ports);
        self.workers(frame, workers);
        self.drops(frame, drops);
        match self.list {
            List::Rules => self.rules(frame, below),
            List::Connections => self.connections(frame, below),
        }
        frame.render_widget(Paragraph::new(KEYS).dim(), keys);
    }

    fn head(&self) -> Paragraph<'_> {
        let moment = &self.rates.moment;
        let text = format!(
            " mmb   {} connections, {}/s made, {}/s ended",
            moment.connections,
            number(moment.made_per_s),
            number(moment.ended_per_s)
        );
        let mut spans = vec![text.bold()];
        if self.paused {
            spans.push("   paused".fg(Color::Yellow));
        }
        if let Some(problem) = &self.problem {
            spans.push(format!("   {problem}").fg(Color::Red));
        }
        Paragraph::new(Line::from(spans))
    }

    fn ports(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rates.ports.iter().map(|port| {
            let [rx, tx] = [traffic(port.rx), traffic(port.tx)];
            std::iter::once(port.name.clone()).chain(rx).chain(tx).collect()
        });
        let heads = ["PORT", "RX PPS", "RX BPS", "TX PPS", "TX BPS"];
        show(frame, area, "ports", &heads, &[Constraint::Fill(1); 5], rows);
    }

    fn workers(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rates.workers.iter().map(|worker| {
            let core = worker.core.map_or_else(|| "-".to_owned(), |core| core.to_string());
            let load = worker.load.map_or_else(|| "-".to_owned(), |load| format!("{:.1}%", load * 100.0));
            vec![worker.worker.to_string(), core, number(worker.packets_per_s), load]
        });
        let heads = ["WORKER", "CORE", "PKT/S", "LOAD"];
        show(frame, area, "workers", &heads, &[Constraint::Fill(1); 4], rows);
    }

    fn drops(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rates.drops.iter().map(|drop| vec![drop.reason.clone(), number(drop.packets_per_s)]);
        let widths = [Constraint::Fill(2), Constraint::Fill(1)];
        show(frame, area, "drops", &["REASON", "PKT/S"], &widths, rows);
    }

    fn rules(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rates.rules.iter().skip(self.above).map(|rule| {
            let [packets, bits] = traffic(rule.matched);
            vec![rule.id.to_string(), packets, bits, number(rule.dropped_per_s), rule.rule.clone()]
        });
        let number = Constraint::Length(11);
        let widths = [number, number, number, number, Constraint::Fill(1)];
        show(frame, area, "rules", &["ID", "PKT/S", "BIT/S", "DROPPED/S", "RULE"], &widths, rows);
    }

    fn connections(&self, frame: &mut Frame<'_>, area: Rect) {
        let title = if self.rates.moment.too_many_connections {
            "connections: too many to compare each"
        } else {
            "connections"
        };
        let rows = self.rates.top_connections.iter().skip(self.above).map(|line| {
            let [forward, reply] = [line.forward, line.reply].map(|rate| traffic(rate)[1].clone());
            let connection = &line.connection;
            let ends = &connection.arrived;
            let text = format!("{}:{} > {}:{}", ends.src, ends.sport, ends.dst, ends.dport);
            vec![connection.proto.clone(), forward, reply, connection.state.clone(), text]
        });
        let length = Constraint::Length;
        let widths = [length(7), length(11), length(11), length(14), Constraint::Fill(1)];
        let heads = ["PROTO", "BIT/S", "REPLY", "STATE", "CONNECTION"];
        show(frame, area, title, &heads, &widths, rows);
    }
}

/// Draws a table in a frame.
fn show(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    heads: &[&'static str],
    widths: &[Constraint],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let heads = Row::new(heads.iter().copied().map(Cell::from)).style(Style::new().dim());
    let cell = |text: String| Cell::from(printable(&text).into_owned());
    let rows = rows.map(|cells| Row::new(cells.into_iter().map(cell)));
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Table::new(rows, widths.to_vec()).header(heads).block(block), area);
}

/// Packets per second, and bits per second on the link.
fn traffic(rate: Rate) -> [String; 2] {
    [number(rate.packets_per_s), number(rate.bytes_per_s * 8.0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_protocol::answer::{DropRate, MomentLine, PortRate, RateLine, RuleRate, WorkerRate};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn rates() -> RateLines {
        let rate = Rate { packets_per_s: 14_880_952.0, bytes_per_s: 952_380_928.0 };
        let mut rates = RateLines::default();
        let moment = MomentLine { seconds: 1.0, connections: 12, made_per_s: 3.5, ..MomentLine::default() };
        rates.add(RateLine::Moment(moment));
        rates.add(RateLine::Port(PortRate { name: "lan".to_owned(), rx: rate, tx: Rate::default() }));
        rates.add(RateLine::Worker(WorkerRate {
            worker: 0,
            core: Some(1),
            packets_per_s: 5.0,
            load: Some(0.425),
        }));
        rates.add(RateLine::Drop(DropRate { reason: "no-wire".to_owned(), packets_per_s: 7.0 }));
        for id in 1..=30 {
            let rule = format!("add tcp-dport {id} drop");
            rates.add(RateLine::Rule(RuleRate { id, rule, matched: rate, dropped_per_s: 9.0 }));
        }
        rates
    }

    fn page(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("draws");
        terminal.backend().to_string()
    }

    #[test]
    fn the_page_shows_what_happens() {
        let mut view = View::new(rates());
        let shown = page(&view, 110, 30);
        for text in [
            "12 connections, 3.5/s made",
            "lan",
            "14.9M",
            "7.62G",
            "42.5%",
            "no-wire",
            "add tcp-dport 1 drop",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        view.scroll(5);
        let scrolled = page(&view, 110, 30);
        assert!(!scrolled.contains("tcp-dport 5 drop") && scrolled.contains("tcp-dport 6 drop"));
        view.scroll(-100);
        assert!(page(&view, 110, 30).contains("tcp-dport 1 drop"));
        view.toggle_pause();
        view.update(Ok(RateLines::default()));
        assert!(page(&view, 110, 30).contains("paused") && page(&view, 110, 30).contains("12 connections"));
    }

    #[test]
    fn a_small_terminal_and_a_daemon_that_is_gone_are_no_problem() {
        let mut view = View::new(rates());
        view.update(Err("no mmb answers".to_owned()));
        for (width, height) in [(1, 1), (20, 5), (300, 3), (80, 24)] {
            page(&view, width, height);
        }
        assert!(page(&view, 100, 24).contains("no mmb answers"));
        view.switch_list();
        assert!(page(&view, 100, 24).contains("connections"));
    }
}
