#!/usr/bin/python3
"""Writes the golden cases: a policy, a capture, and the expected output of `mmb replay`.

usage: tests/golden/make.py [CASE...]

Nothing here runs mmb. scapy builds every expected packet from its expected fields and computes lengths and checksums; the cases
in `cases_*.py` define the result for each packet and the rules that match it. Needs python3-scapy; the captures are committed, so
that the tests need neither.
"""

import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases_checksums  # noqa: E402
import cases_guide  # noqa: E402
import cases_headers  # noqa: E402
import cases_malformed  # noqa: E402
import cases_options  # noqa: E402
import cases_verdicts  # noqa: E402
from captures import write_capture  # noqa: E402

MODULES = [cases_guide, cases_headers, cases_options, cases_checksums, cases_verdicts, cases_malformed]


def summary(case):
    """The expected output of `mmb replay --json`."""
    packets = case["packets"]
    out = [p.out for p in packets if p.out is not None]
    drops = {}
    for packet in packets:
        if packet.drop:
            drops[packet.drop] = drops.get(packet.drop, 0) + 1
    result = {
        "in": {"packets": len(packets), "bytes": sum(len(p.bytes) for p in packets)},
        "out": {"packets": len(out), "bytes": sum(len(data) for data in out)},
        "drops": dict(sorted(drops.items())),
    }
    if case["not_applied"]:
        result["not_applied"] = dict(sorted(case["not_applied"].items()))
    result["rules"] = [
        {
            "id": number,
            "rule": text,
            "packets": sum(number in p.rules for p in packets),
            "bytes": sum(len(p.bytes) for p in packets if number in p.rules),
        }
        for number, text in case["rules"]
    ]
    return result


def write(case):
    folder = HERE / case["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "policy.mmb").write_text(case["policy"] + "\n")
    if case["arguments"]:
        (folder / "arguments").write_text(" ".join(case["arguments"]) + "\n")
    write_capture(folder / "in.pcap", case, changed=False)
    write_capture(folder / "out.pcap", case, changed=True)
    lines = json.dumps(summary(case), indent=1)
    (folder / "summary.json").write_text(lines + "\n")


def main():
    wanted = set(sys.argv[1:])
    cases = [case for module in MODULES for case in module.cases()]
    names = [case["name"] for case in cases]
    assert len(names) == len(set(names)), "two cases have one name"
    unknown = wanted - set(names)
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    for case in cases:
        if not wanted or case["name"] in wanted:
            write(case)
    if not wanted:
        for folder in HERE.iterdir():
            if folder.is_dir() and folder.name not in names and folder.name != "__pycache__":
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
