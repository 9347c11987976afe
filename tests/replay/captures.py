"""Captures for the tests: each packet is written with a number in its timestamp, and read with it."""

import json
import struct
import subprocess

ETHERNET = 1


def write_pcap(path, frames, link=ETHERNET, start=0):
    """The timestamp of each frame contains its number."""
    write_numbered(path, enumerate(frames, start=start), link)


def write_numbered(path, frames, link=ETHERNET):
    """(number, frame) pairs."""
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, link))
        for number, frame in frames:
            out.write(struct.pack("<IIII", 1_000_000 + number // 1000, number % 1000, len(frame), len(frame)) + frame)


def read_pcap(path):
    """[(number, frame)] in the order of the file."""
    data, at, found = path.read_bytes(), 24, []
    while at < len(data):
        seconds, fraction, size, original = struct.unpack_from("<IIII", data, at)
        assert size == original
        found.append(((seconds - 1_000_000) * 1000 + fraction, data[at + 16:at + 16 + size]))
        at += 16 + size
    return found


def replay(mmb, folder, policy, frames, *arguments):
    """Runs frames through a policy; returns the output and the summary."""
    rules, source, sink = folder / "policy.mmb", folder / "in.pcap", folder / "out.pcap"
    rules.write_text(policy)
    write_pcap(source, frames)
    run = subprocess.run([mmb, "replay", "--json", "--rules", rules, *arguments, source, sink],
                         capture_output=True, text=True)
    assert run.returncode == 0, f"{run.stdout}{run.stderr}\n{policy}"
    summary = json.loads(run.stdout)
    assert summary["in"]["packets"] == summary["out"]["packets"] + sum(summary["drops"].values())
    return read_pcap(sink), summary


def replay_wire(mmb, folder, policy, lan, wan):
    """The frames that leave by each port of a wire, by the number in their timestamps, for input frames as (number, frame) pairs;
    and the summary."""
    left, summary = replay_both(mmb, folder, policy, lan, wan)
    return {name: dict(frames) for name, frames in left.items()}, summary


def replay_both(mmb, folder, policy, lan, wan, *arguments):
    """The same with all frames in their order. A frame that mmb makes has the number of the one that made it do so."""
    rules = folder / "policy.mmb"
    rules.write_text("".join(f"{rule}\n" for rule in policy))
    words = [mmb, "replay", "--json", "--rules", rules, *arguments]
    for name, frames in (("lan", lan), ("wan", wan)):
        write_numbered(folder / f"{name}.pcap", frames)
        words += ["--port", f"{name}={folder}/{name}.pcap:{folder}/{name}-out.pcap"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
    summary = json.loads(run.stdout)
    made, dropped = (sum(summary.get(key, {}).values()) for key in ("made", "drops"))
    assert summary["in"]["packets"] + made == summary["out"]["packets"] + dropped
    return {name: read_pcap(folder / f"{name}-out.pcap") for name in ("lan", "wan")}, summary
