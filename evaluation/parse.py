"""Parsers of the output of programs. Each function takes text and returns a dictionary."""

import json
import re

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class Unreadable(ValueError):
    """The output is not that of a successful run of the program."""


def received(text):
    """`ss -tin`: the number of sockets that have received data, and the bytes that their TCP has received in order."""
    found = [int(count) for count in re.findall(r"\bbytes_received:(\d+)", text)]
    return len(found), sum(found)


def wrk(text):
    """`wrk --latency`: requests and bytes per second, quantiles of the response time in seconds, errors."""
    rate = re.search(r"^Requests/sec:\s+([\d.]+)$", text, re.M)
    volume = re.search(r"^Transfer/sec:\s+([\d.]+)(B|KB|MB|GB)$", text, re.M)
    if not rate or not volume:
        raise Unreadable(f"wrk: {text[-300:]}")
    found = {"requests_s": float(rate[1]), "gbit_s": float(volume[1]) * SIZES[volume[2]] * 8 / 1e9}
    for quantile, value, unit in re.findall(r"^\s+(50|75|90|99)%\s+([\d.]+)(us|ms|s|m|h) *$", text, re.M):
        found[f"latency_p{quantile}_s"] = float(value) * UNITS[unit]
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    found["errors"] = sum(map(int, errors.groups())) if errors else 0
    found["errors"] += int(refused[1]) if refused else 0
    return found


def header(text, name):
    """The value of a header field in a head; None if there is none, values with a comma between them if there are several."""
    found = re.findall(rf"^{re.escape(name)}:[ \t]*(.*?)[ \t]*\r?$", text, re.M | re.I)
    return ", ".join(found) if found else None


def ping(text):
    """`ping`: round trips in seconds, in the order of the replies, and the number of requests."""
    sent = re.search(r"^(\d+) packets transmitted, (\d+) received", text, re.M)
    if not sent:
        raise Unreadable(f"ping: {text[-300:]}")
    return {"sent": int(sent[1]), "times_s": [float(value) / 1e3 for value in re.findall(r"time=([\d.]+) ms", text)]}


def blast(text):
    """The last line of our sender."""
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (json.JSONDecodeError, IndexError) as error:
        raise Unreadable(f"blast: {text[-200:]}") from error


def cpu_times(text):
    """/proc/stat: for each core, ticks that it was idle and ticks that the hypervisor took."""
    times = {}
    for line in text.splitlines():
        if match := re.match(r"cpu(\d+) ", line):
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, line.split()[1:9])
            times[int(match[1])] = {"idle": idle + iowait, "steal": steal, "softirq": irq + softirq}
    return times


def interface(text, name):
    """/proc/net/dev: packets and bytes that an interface received and sent."""
    for line in text.splitlines():
        device, _, values = line.partition(":")
        if device.strip() == name:
            numbers = [int(value) for value in values.split()]
            return {"rx_bytes": numbers[0], "rx_packets": numbers[1], "tx_bytes": numbers[8], "tx_packets": numbers[9]}
    raise Unreadable(f"no interface {name} in /proc/net/dev")
