"""External commands. Each has a deadline, and only processes that were started here are ever ended."""

import os
import select
import signal
import subprocess
import time


class CommandFailed(AssertionError):
    """A command failed that must succeed."""


def run(command, timeout=20, check=True, **options):
    """Runs a command until it ends and returns it with its output as text."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, **options)
    if check and done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def wait_until(condition, what, timeout=10):
    """Evaluates the condition until its result is true, and returns the result."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.01)


class Background:
    """A process that runs beside the test, with its output in a file. It ends with the `with` block at the latest."""

    def __init__(self, command, log, **options):
        self.command = [str(word) for word in command]
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # If tests run in the background, SIGINT is ignored, and a child would inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                **options,
            )
        self.exited = os.pidfd_open(self.process.pid)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def output(self):
        return self.log.read_text(errors="replace")

    def signal(self, number):
        if self.running():
            self.process.send_signal(number)

    def wait(self, timeout=10):
        """Waits for the end and returns the exit status (negative: the number of the signal)."""
        return self.process.wait(timeout)

    def stop(self, timeout=10):
        """Sends SIGTERM, after a timeout SIGKILL, and returns the exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.wait()
            raise AssertionError(f"{self.command[0]} did not end within {timeout} s of SIGTERM") from None

    def close(self):
        """Sends SIGKILL."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        if self.exited is not None:
            os.close(self.exited)
            self.exited = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def wait_readable(self, other, timeout):
        """Waits until `other` is readable; false if the process ended first or after the timeout."""
        ready, _, _ = select.select([other, self.exited], [], [], timeout)
        return other in ready

    def wait_listening(self, port, timeout=10):
        """Waits until a TCP socket listens on the port in the process's namespace."""
        wait_until(lambda: not self.running() or self._listens(port), f"{self.command} listens on {port}", timeout)
        if not self.running():
            raise AssertionError(f"{' '.join(self.command)} ended: {self.output()}")

    def _listens(self, port):
        suffix, listen = f":{port:04X}", "0A"
        for family in ("tcp", "tcp6"):
            with open(f"/proc/{self.pid}/net/{family}", encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1].endswith(suffix) and fields[3] == listen:
                        return True
        return False

    def cpu_seconds(self):
        """Processor time so far, of all threads."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Bytes of resident memory."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))
