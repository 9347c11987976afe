"""A headless Chromium, driven by the DevTools protocol through a pair of pipes."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = "chromium-headless-shell"
TIMEOUT = 30


class PageError(AssertionError):
    """A script of the page failed, or the browser refused something that it asked for."""


class Browser:
    """One page. `errors` collects what scripts and the browser complain about: exceptions, console errors, violations of the CSP."""

    def __init__(self, folder, width=1200, height=900, dark=False, insecure=False):
        self.errors = []
        self._number = 0
        self._buffer = b""
        to_read, self._write = _pipe()
        self._read, to_write = _pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        options = ["--remote-debugging-pipe", "--no-sandbox", f"--user-data-dir={folder}", "--disable-gpu", "--hide-scrollbars"]
        if insecure:
            options.append("--ignore-certificate-errors")
        self.log = open(folder / "browser.log", "wb")
        self.process = subprocess.Popen(
            ["bash", "-c", command, PROGRAM, *options], pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        os.close(to_read)
        os.close(to_write)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def call(self, method, **parameters):
        """Calls a method of the protocol and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 16) if ready else b""
            if not data:
                raise PageError("the browser does not answer")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params"))
        return message

    def _note(self, method, about):
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            self.errors.append(str([argument.get("value") for argument in about["args"]]))
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression; promises are waited for."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise PageError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, script):
        """Waits until an expression is true."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            if self.run(f"(() => {{ try {{ return Boolean({script}) }} catch {{ return false }} }})()"):
                return
            if time.monotonic() > deadline:
                raise PageError(f"not within {TIMEOUT} s: {script}; errors: {self.errors}; the page: {self.text()[:2000]}")
            time.sleep(0.05)

    def text(self):
        return self.run("document.body.innerText")

    def type(self, selector, text):
        """Replaces the text of an input, as a user who pastes it."""
        self.run(f"(() => {{ const input = document.querySelector({json.dumps(selector)}); input.focus(); input.value = {json.dumps(text)};"
                 " input.dispatchEvent(new Event('input', {bubbles: true})); })()")

    def click(self, label):
        """Clicks the button with this text."""
        self.run(f"[...document.querySelectorAll('button')].find((one) => one.textContent === {json.dumps(label)}).click()")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=False)["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        for end in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _pipe():
    """A pipe whose ends are no descriptors that the browser gives a meaning to."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return high


def is_there():
    return shutil.which(PROGRAM) is not None
