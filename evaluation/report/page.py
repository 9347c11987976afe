"""The page: docs/evaluation/README.md, with its plots."""

import re

from evaluation import budget, figures
from evaluation.machine import QUIET
from evaluation.store import write_atomically

from . import answers, papers, plots, repetitions, tables, targets
from .data import Results

ABOUT = {
    "default-forwarding": "No rules, and devices as the kernel makes them, which is what containers and virtual machines have: TCP moves"
    " segments of up to 64 KB as one packet. Cycles are those of a KB, since packets differ in size.",
    "default-firewall": "The firewall below, with devices as the kernel makes them. Kernel forwarding has no rules: it is the path.",
    "default-nat": "Source NAT, with devices as the kernel makes them.",
    "default-stateful": "Connections are tracked, and the rules below apply, with devices as the kernel makes them.",
    "forwarding": "No rules: what each system can forward on one core. `no middle` is what the generators can do by themselves.",
    "firewall": "Random five-tuples, no packet matches any. mmb and XDP look packets up in a table, nftables in a set, iptables"
    " tries each rule.",
    "stateful": "The same rules, and every packet belongs to a tracked connection. The kernel's filters accept packets of"
    " established connections before the rules; mmb takes what it remembers of a connection. The UDP is never"
    " answered: for the kernel it stays new, and its packets meet the rules each time.",
    "nat": "The client's address and ports become others of 200.0.0.1.",
    "options": "Random kinds and values of TCP options, no segment has any of them. nftables has a rule for each kind, with a set"
    " of values.",
    "masks": "Each rule fixes other bits of the header than every other rule; no packet matches.",
    "rtt": "Pings a millisecond apart, alone and beside seven TCP streams.",
    "established": "Each flow was answered once before the measurement, so that its packets belong to an established connection."
    " Kernel forwarding tracks nothing.",
    "connections": "wrk opens a connection for each file of 1 KB, and the server closes it (`Connection: close`). nftables masquerades.",
    "files": "wrk and nginx, no rules, files of several sizes.",
    "balance": "Connections to one address go to three servers in turn.",
    "balance-files": "The same with 128 connections that stay open, and files of several sizes. HAProxy ends each connection and begins"
    " another.",
    "chain": "Each function is one more: 0 forwards; 1 is source NAT, with bytes counted for each connection; 2 has the bytes of both"
    " directions in order, counts and checksums them (CRC-32C); 3 searches them for 100 literals, and holds receivers to what was"
    " searched. A kernel's filter ends at 1. HAProxy ends TCP, so that it has the bytes in order (without a checksum), and hides the"
    " client: it stands at 2.",
    "patterns": "Both directions are searched for random literals of 10 to 16 letters; iperf3 sends random bytes, nginx random words."
    " Suricata runs inline between the same two interfaces (AF_PACKET), with streams of any length, without its parsers of application"
    " protocols; its rules drop, mmb's close.",
    "rewrite-http-body": "Each KB of a page has a word that becomes a longer text, so that almost every segment changes and every page grows: mmb"
    " changes bodies inside the connection between client and server (`mod http-body`), nginx (`sub_filter`) and Apache (`mod_substitute`)"
    " are reverse proxies. Before each run one page is compared with what must arrive, byte for byte. Kernel forwarding and mmb without"
    " rules rewrite nothing: they are the path.",
    "rewrite-http-latency": "The same with one connection, a request at a time: what rewriting adds is the difference to the path without.",
    "rewrite-http-mask": "The word becomes as many stars: mmb masks plain bytes of streams (`mask stream-reply`), without parsing HTTP.",
    "rewrite-http-head": "The header field `Server` of responses becomes another: `mod http-header` of mmb, `http-response set-header` of"
    " HAProxy, `reply_header_replace` of squid, which caches nothing.",
}


def write(results, folder):
    """Writes the page and its plots into a folder and removes the plots of earlier results."""
    for old in folder.glob("*.svg"):
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    shown = Results(results)
    parts = [_head(results), papers.section(shown), _answers(shown), "## Between namespaces\n"]
    for name, point in shown.titles().items():
        if name in ABOUT:
            parts.append(_experiment(shown, name, point, folder))
    parts += [_in_memory(shown, folder), _rest(results)]
    write_atomically(folder / "README.md", "\n".join(part for part in parts if part))


def _head(results):
    here, idle = results["machine"], results["idle"]
    missing = results.get("missing", {})
    lacking = f" Not measured yet: {', '.join(f'{name} ({count} points)' for name, count in missing.items())}." if missing else ""
    quick = " This is the quick evaluation; `make evaluate` has more sizes and longer runs." if results["plan"] == "quick" else ""
    earlier = f" ({results['reused']} points are of earlier sessions)" if results.get("reused") else ""
    ends = ", ".join(map(str, here["end_cores"]))
    return f"""# What mmb does beside what would be used instead

Made by `{results["command"]}` on {results["begun"]}, in {budget.duration(results["seconds"] / 60)}{earlier}.{quick}{lacking} Every figure on this
page is of [results.json](results.json); [method.md](method.md) describes how they are measured and their limits. Figures of
another machine are others: run `make evaluate` on yours.

- Machine: {here["cpu"]} ({here["cpu_id"]}), {here["cores"]} cores, {here["memory_gb"]} GB, {here["distribution"]}, Linux
  {here["kernel"]}, TCP with {here["congestion_control"]}. Cycles are those of the time-stamp counter, {results["tsc_hz"] / 1e9:.3f} GHz.
- Cores: {here["middle_core"]} for the middle (mmb or a peer), {ends} for the ends. With nothing running, the middle's core was busy
  {idle["before"]["middle_busy"]:.1%} of the time before and {idle["after"]["middle_busy"]:.1%} after.
{repetitions.head(results)}
- Offloads: {results["offloads"]["plain"]}, but where the text says otherwise.
{_busy(idle, max((point.get("busy_before", 0.0) for point in results["points"]), default=0.0))}"""


def _busy(idle, busy_before):
    if max(moment["middle_busy"] for moment in idle.values()) <= QUIET and busy_before <= QUIET:
        return ""
    return "\n**The machine had other work meanwhile: these figures show that the evaluation runs, and nothing else.**\n"


def _answers(shown):
    sections = (
        ("Targets of kernel interfaces", targets.table(shown)),
        ("Which device type", answers.devices(shown)),
        ("What to expect of a core", answers.per_core(shown)),
        ("Where the knees are", answers.knees(shown)),
        ("Rewriting HTTP", answers.rewriting(shown)),
        ("Ahead and behind", answers.comparison(shown)),
    )
    text = "\n".join(f"### {title}\n\n{body}" for title, body in sections if body)
    return f"## For operators\n\n{text}" if text else ""


def _experiment(shown, name, point, folder):
    points = shown.find(experiment=name)
    measured = [each for each in points if any(run["ok"] for run in each["runs"])]
    picture = f"{name}.svg"
    if measured:
        if name == "rtt":
            plots.round_trips(folder / picture, measured)
        elif len({each["x"] for each in measured}) > 1:
            plots.lines(folder / picture, measured)
        else:
            plots.bars(folder / picture, measured)
    parts = [f"### {point['title']}\n\n{ABOUT[name]}\n"]
    parts += [f"![{point['title']}]({picture})\n\n{papers.caption(shown, name)}\n"] if measured else [f"{papers.caption(shown, name)}\n"]
    for load, chosen in tables.by_load(points).items():
        title = chosen[0]["load_title"] if chosen[0]["axis"] != "KB" else tables.WEB.get(load, "wrk and nginx")
        labels = figures.labels(name, load)
        parts.append(f"{title}{f' ({labels})' if labels else ''}:\n\n{tables.live(chosen)}")
    return "\n".join(parts)


def _in_memory(shown, folder):
    parts = []
    if found := shown.find(experiment="cycles"):
        plots.cycles(folder / "cycles.svg", found)
        parts.append(
            "### Cycles of a packet\n\n`mmb bench` on random packets that lie in memory, 64 bytes on a wire unless a rule needs"
            f" more.\n\n![Cycles of a packet](cycles.svg)\n\n{papers.caption(shown, 'cycles')}\n\n" + tables.cycles(found)
        )
    if found := shown.find(experiment="streams"):
        parts.append(
            "### A chain of functions on streams\n\n`mmb bench --workload streams`: 1,000 TCP connections that send segments of 1,448"
            " bytes, each function one more. Gbit/s are payload. Figure 13 of the paper on MiddleClick has 34 Gbit/s for NAT with"
            " statistics on one core, the limit of its testbed, and 20 with reassembly, on other machines, with network cards and"
            f" 8 KB requests.\n\n{papers.caption(shown, 'streams')}\n\n" + tables.streams(found)
        )
    if found := shown.find(experiment="memif"):
        parts.append(
            "### Packets over memif\n\nA generator on one core, mmb on another, shared memory between them. Where mmb's core is"
            f" not busy all the time, the generator is the bottleneck.\n\n{papers.caption(shown, 'memif')}\n\n" + tables.memif(found)
        )
    if found := shown.find(experiment="vpp"):
        parts.append(
            "### VPP\n\nThe clocks of the nodes of a feature, by VPP's own count, on packets like those above.\n\n"
            f"{papers.caption(shown, 'vpp')}\n\n" + tables.vpp(found)
        )
    return "## In memory\n\n" + "\n".join(parts) if parts else ""


def _rest(results):
    here = results["machine"]
    workarounds = "; ".join(f"{name}: {re.sub('^Mitigation: *', '', text)}" for name, text in here["mitigations"].items())
    return "\n".join(
        (
            repetitions.section(results),
            "## Runs that failed\n",
            tables.failures(results["points"]) or "None.\n",
            "## Versions\n",
            tables.versions(here),
            f"mmb was built from {here['commit']}. What the kernel does about weaknesses of the processor: {workarounds or '–'}.\n",
        )
    )
