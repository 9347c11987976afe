"""Console sessions in Markdown, and a shell that repeats them.

A block ` ```console ` is a session: a line `$ COMMAND` (its further lines begin with `> `), and below it what the command prints. `…` in a
line of output stands for any text, and a line `…` for any lines. All blocks of a document are one session of one shell.

The shell has namespaces of its own for mounts, the network and processes: names in /run/netns are not seen outside, and everything that it
started ends with it.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass

LIMIT_S = 60


@dataclass
class Step:
    """A command, and the lines that it is said to print."""

    line: int
    command: str
    output: list


class Differs(AssertionError):
    """A command printed something else than the document says."""


def steps(text):
    """The commands of all sessions of a document."""
    found, fenced = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = line == "```console"
        elif fenced and line.startswith("$ "):
            found.append(Step(number, line[2:], []))
        elif fenced and line.startswith("> ") and not found[-1].output:
            found[-1].command += "\n" + line[2:]
        elif fenced:
            found[-1].output.append(line)
    return found


def matches(said, printed):
    """Whether the printed lines are those that the document shows."""
    pattern = ""
    for line in said:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


class Shell:
    """A bash in namespaces of its own."""

    def __init__(self, folder, path):
        start = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && mount -t sysfs none /sys && ip link set lo up && exec bash --norc"
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start],
            cwd=folder,
            env={**os.environ, "PATH": f"{path}:/usr/sbin:/sbin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command):
        """The lines that a command prints."""
        mark = f"-- end {time.monotonic_ns()} --"
        self._process.stdin.write(f"{command}\nprintf '\\n%s\\n' '{mark}'\n".encode())
        self._process.stdin.flush()
        printed, deadline = b"", time.monotonic() + LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not printed.endswith(f"\n{mark}\n".encode()):
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise Differs(f"no end within {LIMIT_S} s: {command}\n{printed.decode(errors='replace')}")
                piece = os.read(self._process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise Differs(f"the shell ended: {command}\n{printed.decode(errors='replace')}")
                printed += piece
        text = printed.decode(errors="replace")[: -len(mark) - 2]
        return text.removesuffix("\n").split("\n") if text else []

    def close(self):
        """Ends the shell and all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def repeat(document, shell):
    """Runs all commands of a document and compares what they print."""
    for step in steps(document.read_text()):
        printed = shell.run(step.command)
        if not matches(step.output, printed):
            said, found = "\n".join(step.output), "\n".join(printed)
            raise Differs(f"{document.name}:{step.line}: {step.command}\n--- said\n{said}\n--- printed\n{found}")
