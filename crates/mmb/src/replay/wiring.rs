//! The files of the two ends of the wire.

use crate::cli::ReplayArgs;
use std::path::{Path, PathBuf};

/// Two ports and their captures.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplayWiring {
    /// The ports' names, by number.
    pub(super) names: [String; 2],
    /// The input and the output of each direction.
    pub(super) directions: Vec<ReplayDirection>,
}

/// One direction of the wire.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReplayDirection {
    /// The number of the port where the packets enter; they leave by the other one.
    pub(super) from: u16,
    /// The capture to read; `-` is standard input.
    pub(super) input: PathBuf,
    /// The capture to write; `-` is standard output.
    pub(super) output: PathBuf,
}

/// The path of standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl ReplayWiring {
    /// Reads the wiring from the command line.
    ///
    /// # Errors
    /// The command line is wrong.
    pub(super) fn from_args(args: &ReplayArgs) -> Result<ReplayWiring, String> {
        let wiring = match (&args.input, &args.output) {
            (Some(input), Some(output)) => ReplayWiring {
                names: ["a".to_owned(), "b".to_owned()],
                directions: vec![ReplayDirection { from: 0, input: input.clone(), output: output.clone() }],
            },
            _ => ReplayWiring::from_ports(&args.ports)?,
        };
        let standard = |path: fn(&ReplayDirection) -> &Path| {
            wiring.directions.iter().filter(|direction| is_standard(path(direction))).count()
        };
        if standard(|direction| &direction.input) + usize::from(is_standard(&args.rules)) > 1 {
            return Err("standard input can be read only once: give files instead of '-'".into());
        }
        if standard(|direction| &direction.output) > 1 {
            return Err("standard output can hold only one capture: give files instead of '-'".into());
        }
        Ok(wiring)
    }

    /// Returns whether all packets enter by one port.
    pub(super) fn is_one_way(&self) -> bool {
        self.directions.len() == 1
    }

    /// Returns whether a capture goes to standard output, so that no other output may.
    pub(super) fn writes_standard_output(&self) -> bool {
        self.directions.iter().any(|direction| is_standard(&direction.output))
    }

    fn from_ports(ports: &[String]) -> Result<ReplayWiring, String> {
        let [first, second] = ports else {
            return Err(format!(
                "a wire has two sides: give --port NAME=IN:OUT twice, not {} times",
                ports.len()
            ));
        };
        let (a, b) = (ReplayPort::parse(first)?, ReplayPort::parse(second)?);
        if a.name == b.name {
            return Err(format!("both ports are called '{}'", a.name));
        }
        let direction = |from, enters: &ReplayPort, leaves: &ReplayPort| ReplayDirection {
            from,
            input: enters.input.clone(),
            output: leaves.output.clone(),
        };
        Ok(ReplayWiring {
            directions: vec![direction(0, &a, &b), direction(1, &b, &a)],
            names: [a.name, b.name],
        })
    }
}

/// The parts of one `--port`.
struct ReplayPort {
    name: String,
    input: PathBuf,
    output: PathBuf,
}

impl ReplayPort {
    fn parse(text: &str) -> Result<ReplayPort, String> {
        let bad = |why: &str| Err(format!("bad --port '{text}': {why}; it is NAME=IN:OUT"));
        let Some((name, files)) = text.split_once('=') else {
            return bad("there is no '='");
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return bad("a port's name consists of letters, digits and - _ .");
        }
        let (input, output) = match files.split(':').collect::<Vec<_>>()[..] {
            [input, output] if !input.is_empty() && !output.is_empty() => (input, output),
            [_, _] => return bad("a file is missing"),
            [_] => return bad("there is no ':' between two files"),
            _ => return bad("names of files may not contain ':' here"),
        };
        Ok(ReplayPort { name: name.to_owned(), input: input.into(), output: output.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(input: Option<&str>, output: Option<&str>, ports: &[&str]) -> ReplayArgs {
        ReplayArgs {
            rules: "policy.mmb".into(),
            input: input.map(PathBuf::from),
            output: output.map(PathBuf::from),
            ports: ports.iter().map(|&port| port.to_owned()).collect(),
            seed: 0,
            mtu: None,
        }
    }

    #[test]
    fn two_files_are_a_way_from_a_to_b() {
        let wiring = ReplayWiring::from_args(&args(Some("in"), Some("out"), &[])).unwrap();
        assert_eq!(wiring.names, ["a", "b"]);
        assert_eq!(
            wiring.directions,
            [ReplayDirection { from: 0, input: "in".into(), output: "out".into() }]
        );
    }

    #[test]
    fn what_enters_one_side_leaves_by_the_other() {
        let wiring = ReplayWiring::from_args(&args(None, None, &["inside=1:2", "outside=3:4"])).unwrap();
        assert_eq!(wiring.names, ["inside", "outside"]);
        assert_eq!(
            wiring.directions,
            [
                ReplayDirection { from: 0, input: "1".into(), output: "4".into() },
                ReplayDirection { from: 1, input: "3".into(), output: "2".into() },
            ]
        );
    }

    #[test]
    fn bad_wirings_are_refused() {
        for (ports, part) in [
            (&["a=1:2"][..], "twice"),
            (&["a=1:2", "b=3:4", "c=5:6"], "twice"),
            (&["a=1:2", "a=3:4"], "both"),
            (&["a", "b=3:4"], "'='"),
            (&["=1:2", "b=3:4"], "name"),
            (&["a b=1:2", "b=3:4"], "name"),
            (&["a=1", "b=3:4"], "':'"),
            (&["a=1:", "b=3:4"], "missing"),
            (&["a=1:2:3", "b=3:4"], "may not contain"),
            (&["a=-:2", "b=-:4"], "standard input"),
            (&["a=1:-", "b=3:-"], "standard output"),
        ] {
            let error = ReplayWiring::from_args(&args(None, None, ports)).unwrap_err();
            assert!(error.contains(part), "{ports:?}: {error}");
        }
    }
}
