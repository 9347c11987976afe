"""The properties of the NAT that coturn discovers from outside, as a peer-to-peer application would (RFC 5780)."""

import pytest

from lab.process import wait_until

from .routed import INSIDE4, OUTSIDE4, SOURCE, SOURCE_NFT


@pytest.fixture(scope="module")
def stun(routed_site):
    """A STUN server with two addresses and two ports."""
    folder = routed_site.folder
    files = ["--log-file", "stdout", "--pidfile", folder / "turn.pid", "--db", folder / "turn.db"]
    words = ["turnserver", "-n", "--no-auth", "--no-cli", "--no-tls", "--no-dtls", "--no-tcp-relay", "-m", "1", *files]
    for address in OUTSIDE4[:2]:
        words += ["-L", address]
    with routed_site.server.start(words, folder / "turn.log") as server:
        server.wait_listening(3479)
        yield server


def discovered(nat, *options):
    """The output of natdiscovery, once the server answers."""
    words = ["turnutils_natdiscovery", *options, "-L", INSIDE4[0], OUTSIDE4[0]]

    def ask():
        output = nat.client.run(*words, check=False, timeout=40).stdout
        return output if "UDP reflexive addr" in output else None

    return wait_until(ask, "the STUN server answers", 30)


FILTERING = {
    "endpoint-independent": "Endpoint Independent Filtering!",
    "address-dependent": "Address Dependent Filtering!",
}


@pytest.mark.parametrize("filtering", FILTERING)
def test_mapping_and_filtering_are_found_out_as_they_are_set(of_mmb, stun, filtering):
    """RFC 4787 REQ-1 and REQ-8."""
    of_mmb.tested.policy([f"set nat filtering {filtering}", *SOURCE])
    lines = discovered(of_mmb, "-m", "-f").splitlines()
    assert "NAT with Endpoint Independent Mapping!" in lines
    assert f"NAT with {FILTERING[filtering]}" in lines


def test_the_strictest_filtering_is_found_out(nat, stun):
    """The behaviour of nftables, and of mmb if it is set so."""
    nat.tested.policy(["set nat filtering address-and-port-dependent", *SOURCE], SOURCE_NFT)
    lines = discovered(nat, "-m", "-f").splitlines()
    assert "NAT with Endpoint Independent Mapping!" in lines
    assert "NAT with Address and Port Dependent Filtering!" in lines


def test_hairpinning_is_found_out(of_mmb, stun):
    """RFC 4787 REQ-9: a host may reach itself by its outside address."""
    of_mmb.tested.policy(["set nat filtering endpoint-independent", *SOURCE])
    output = discovered(of_mmb, "-H")
    assert "successful hairpinning" in output, output
