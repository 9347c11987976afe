//! `mmb top`: what happens now, second by second, on a terminal.
//!
//! A thread asks the daemon for its rates again and again, as `show rates` does; this one draws what has come and reads keys. A daemon that
//! goes away may come back: the thread keeps trying.

mod view;

use crate::client::ClientOptions;
use anyhow::{Context, bail, ensure};
use mmb_protocol::Client;
use mmb_protocol::answer::{Answer, RateLines};
use mmb_protocol::request::Request;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;
use view::{Told, View};

/// The time for which a key is waited for before new rates are looked for.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The pause before a daemon that is gone is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The longest time that a daemon takes to answer, which measures for a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Draws until the user has enough.
pub(crate) fn main(options: &ClientOptions) -> anyhow::Result<ExitCode> {
    ensure!(
        std::io::stdout().is_terminal() && !options.json,
        "top draws on a terminal; `mmb show rates` prints the same once, also with --json"
    );
    let path = options.socket().to_owned();
    // The first answer decides whether there is a terminal to draw on, or an error to print.
    let first = ask(&path)?;
    let (sender, told) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("mmb-top".to_owned())
        .spawn(move || keep_asking(path, &sender))
        .context("cannot start a thread")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let drawn = draw(&mut terminal, View::new(first), &told);
    ratatui::restore();
    drawn.map(|()| ExitCode::SUCCESS)
}

/// Asks for rates until nobody wants them.
fn keep_asking(path: PathBuf, sender: &SyncSender<Told>) {
    loop {
        let told = ask(&path).map_err(|error| error.to_string());
        let failed = told.is_err();
        if sender.send(told).is_err() {
            return;
        }
        if failed {
            thread::sleep(RETRY_PAUSE);
        }
    }
}

/// Asks for the rates of a second.
fn ask(path: &Path) -> anyhow::Result<RateLines> {
    let mut client = Client::connect(path)?.with_timeout(ANSWER_TIMEOUT)?;
    let mut rates = RateLines::default();
    let request = Request::Run(vec!["show rates".to_owned()]);
    client.ask(&request, |answer| {
        match answer {
            Answer::Rate(line) => rates.add(line),
            Answer::Error(error) => bail!(error.message),
            _ => {}
        }
        Ok(())
    })?;
    Ok(rates)
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    mut view: View,
    told: &Receiver<Told>,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event::read()?
        {
            match code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char(' ' | 'p') => view.toggle_pause(),
                KeyCode::Tab => view.switch_list(),
                KeyCode::Down | KeyCode::Char('j') => view.scroll(1),
                KeyCode::Up | KeyCode::Char('k') => view.scroll(-1),
                _ => {}
            }
        }
        for told in told.try_iter() {
            view.update(told);
        }
    }
}
