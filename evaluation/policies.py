"""The policies of the systems, independent of any system.

Rules are random, from a seed, and none matches the traffic of the loads: the traffic has addresses in 10.0.0.0/8 and 200.0.0.1,
the rules have others. Where a packet must match, a further rule matches it.
"""

import functools
import ipaddress
import random
from dataclasses import dataclass
from typing import NamedTuple

TCP, UDP = 6, 17
# Unicast without the addresses of the loads' traffic: 10.0.0.0/8 and 200.0.0.1.
FIRST_OCTETS = [octet for octet in range(11, 224) if octet not in (127, 200)]
# Options that no stack sends: unassigned kinds, and the two for experiments.
KINDS = (*range(70, 254), 254)


# A chain of functions, each a further one: what a policy of the kind `chain` of that size does.
FUNCTIONS = ("forwarding", "source NAT", "reassembly", "search")
# The literals of the last function.
SEARCHED = 100
# The letters of literals, which the payload of the loads has too.
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Rewriting of what servers answer: a word in bodies becomes a longer text, or as many stars, or the value of a header field changes.
REWRITING = ("rewrite-body", "rewrite-mask", "rewrite-head")
# The bytes of a line of a page, with its end.
PAGE_LINE = 64
WORD, LONGER, STARS = "WORD", "LONGER WORD", "****"
SERVER_NAME = "evaluated"


class Tuple(NamedTuple):
    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int


class Shape(NamedTuple):
    """A rule with a mask of its own: prefixes, a protocol, a destination port and optionally a source port."""

    source: str
    destination: str
    protocol: int
    source_port: int | None
    destination_port: int


@dataclass(frozen=True)
class Policy:
    """`kind`: none, firewall, stateful, nat, masquerade (a NAT to an address of the middle's choice), options, masks, balance, chain,
    patterns or one of `REWRITING`; `size` is the number of rules, of functions (of the chain) or of literals, if the kind has several."""

    kind: str
    size: int = 0
    seed: int = 1

    def random(self):
        return random.Random(f"{self.kind} {self.size} {self.seed}")

    def tuples(self):
        """Distinct five-tuples."""
        return _tuples(self)

    def options(self):
        """Distinct TCP options: a kind and four bytes as a number."""
        chance, drawn = self.random(), {}
        while len(drawn) < self.size:
            drawn[chance.choice(KINDS), chance.getrandbits(32)] = None
        return list(drawn)

    def literals(self):
        """Distinct texts that no payload of the loads has."""
        chance, drawn = random.Random(f"literals {self.seed}"), {}
        while len(drawn) < (SEARCHED if self.kind == "chain" else self.size):
            drawn["".join(chance.choices(LETTERS, k=chance.randint(10, 16)))] = None
        return list(drawn)

    def replacement(self):
        """What becomes of the word in bodies."""
        return {"rewrite-body": LONGER, "rewrite-mask": STARS}.get(self.kind, WORD)

    def shapes(self):
        """Rules with distinct masks."""
        chance = self.random()
        lengths = [(one, other) for one in range(8, 33) for other in range(8, 33)]
        chance.shuffle(lengths)
        if self.size > len(lengths):
            raise ValueError(f"{len(lengths)} masks at most, not {self.size}")
        for number, (source, destination) in enumerate(lengths[: self.size]):
            yield Shape(
                _prefix(chance, source),
                _prefix(chance, destination),
                TCP if number % 4 < 2 else UDP,
                _port(chance) if number % 2 else None,
                _port(chance),
            )


@functools.lru_cache(maxsize=1)
def _tuples(policy):
    """Five-tuples, cached: every system uses the same rules in turn, and generating a million of them takes seconds."""
    chance, drawn = policy.random(), {}
    while len(drawn) < policy.size:
        drawn[Tuple(_address(chance), _address(chance), chance.choice((TCP, UDP)), _port(chance), _port(chance))] = None
    return list(drawn)


def text(size, seed=1):
    """Payload in which a search has something to do: random words."""
    return "".join(random.Random(f"text {seed}").choices(LETTERS + "   ", k=size)).encode()


def page(size_kb, seed=1):
    """A page of lines of random words: each KB has the word once, at a random place, so that it is in almost every segment. Without one
    of its letters nothing else is the word in another case of letters, which nginx does not tell apart."""
    chance, lines = random.Random(f"page {size_kb} {seed}"), []
    letters = LETTERS.replace(WORD[0].lower(), "") + "   "
    for _ in range(size_kb * 1024 // PAGE_LINE):
        lines.append("".join(chance.choices(letters, k=PAGE_LINE - 1)))
    a_kb = 1024 // PAGE_LINE
    for first in range(0, len(lines), a_kb):
        number, at = first + chance.randrange(a_kb), chance.randrange(PAGE_LINE - len(WORD))
        lines[number] = lines[number][:at] + WORD + lines[number][at + len(WORD) :]
    return "".join(f"{line}\n" for line in lines).encode()


def _address(chance):
    low = chance.getrandbits(24)
    return f"{chance.choice(FIRST_OCTETS)}.{low >> 16}.{low >> 8 & 255}.{low & 255}"


def _prefix(chance, length):
    return str(ipaddress.ip_network(f"{_address(chance)}/{length}", strict=False))


def _port(chance):
    return chance.randrange(1, 65536)
