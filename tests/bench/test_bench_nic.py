"""NIC state from ethtool's words, and what a run would change; outputs are of real NICs or as ethtool prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.bench.nic import (
    NicState,
    governors,
    parse_answers,
    parse_coalescing,
    parse_driver,
    parse_eee,
    parse_offloads,
    parse_pause,
    parse_ring,
    segment_interfaces,
)
from rig.bench.nic_settings import Change, commands, planned
from rig.errors import BenchError

VETH_K = """\
Features for va:
rx-checksumming: on
tx-checksumming: on
	tx-checksum-ip-generic: on
scatter-gather: on
	tx-scatter-gather: on
tcp-segmentation-offload: on
	tx-tcp-segmentation: on
	tx-tcp-ecn-segmentation: off
	tx-tcp-mangleid-segmentation: on
	tx-tcp6-segmentation: on
generic-segmentation-offload: on
generic-receive-offload: on
large-receive-offload: off [fixed]
rx-vlan-offload: on
tx-udp-segmentation: off [requested on]
tx-gre-segmentation: on
rx-gro-hw: off [fixed]
rx-gro-list: off
rx-udp-gro-forwarding: off
"""

VIRTIO_C = """\
Coalesce parameters for eth0:
Adaptive RX: off  TX: n/a
stats-block-usecs: n/a
sample-interval: n/a

rx-usecs: 0
rx-frames: 1
rx-usecs-irq: n/a

tx-usecs: 0
tx-frames: 1

rx-usecs-high: n/a

CQE mode RX: n/a  TX: n/a
"""

INTEL_C = """\
Coalesce parameters for enp3s0:
Adaptive RX: on  TX: off
stats-block-usecs:	0
rx-usecs:	125
rx-frames:	5
rx-usecs-irq:	0
tx-usecs:	72
tx-frames:	0
"""

VIRTIO_G = """\
Ring parameters for eth0:
Pre-set maximums:
RX:		256
RX Mini:	n/a
RX Jumbo:	n/a
TX:		512
Current hardware settings:
RX:		128
RX Mini:	n/a
RX Jumbo:	n/a
TX:		256
RX Buf Len:		n/a
TX Push:	off
"""


def test_offloads_are_the_features_that_merge_and_never_the_group() -> None:
    found = parse_offloads(VETH_K)
    assert found == {
        "tx-tcp-segmentation": "on",
        "tx-tcp-ecn-segmentation": "off",
        "tx-tcp-mangleid-segmentation": "on",
        "tx-tcp6-segmentation": "on",
        "generic-segmentation-offload": "on",
        "generic-receive-offload": "on",
        "large-receive-offload": "off [fixed]",
        "tx-udp-segmentation": "off [requested on]",
        "rx-gro-hw": "off [fixed]",
        "rx-gro-list": "off",
        "rx-udp-gro-forwarding": "off",
    }


def test_coalescing_leaves_out_what_the_driver_does_not_have() -> None:
    assert parse_coalescing(VIRTIO_C) == {
        "adaptive-rx": "off",
        "rx-usecs": "0",
        "rx-frames": "1",
        "tx-usecs": "0",
        "tx-frames": "1",
    }
    intel = parse_coalescing(INTEL_C)
    assert (intel["adaptive-rx"], intel["adaptive-tx"], intel["rx-usecs"]) == ("on", "off", "125")


def test_ring_pause_eee_and_driver() -> None:
    assert parse_ring(VIRTIO_G) == {"rx-max": "256", "tx-max": "512", "rx": "128", "tx": "256"}
    pause = "Pause parameters for enp3s0:\nAutonegotiate:\ton\nRX:\t\ton\nTX:\t\toff\n"
    assert parse_pause(pause) == {"autonegotiate": "on", "rx": "on", "tx": "off"}
    eee = "EEE settings for enp3s0:\n\tEEE status: %s\n\tTx LPI: 17 (us)\n"
    assert parse_eee(eee % "enabled - active") == "enabled - active"
    assert parse_eee(eee % "not supported") == ""
    assert parse_driver("driver: igb\nversion: 6.1.0-18\nfirmware-version: 3.25\n") == "igb 6.1.0-18"


@pytest.mark.parametrize("parse", [parse_offloads, parse_coalescing, parse_ring, parse_pause, parse_eee, parse_driver])
def test_an_interface_without_any_of_it_has_none(parse) -> None:  # type: ignore[no-untyped-def]
    assert not parse("")
    assert not parse("netlink error: Operation not supported\n")


def test_one_process_answers_for_all_nics() -> None:
    nothing = "netlink error: Operation not supported\n"
    said = (
        f"@ va -i\ndriver: veth\nversion: 1.0\n@ va -k\n{VETH_K}@ va -c\n{nothing}@ va -g\n{nothing}@ va -a\n{nothing}"
        f"@ va --show-eee\n@ en p -i\ndriver: igb\nversion: 6.1\n@ en p -k\n@ en p -c\n{INTEL_C}@ en p -g\n"
        f"{VIRTIO_G}@ en p -a\n@ en p --show-eee\nEEE settings for en p:\n\tEEE status: disabled\n"
    )
    veth, other = parse_answers(said)
    assert (veth.name, veth.driver, veth.offloads, veth.eee) == ("va", "veth 1.0", parse_offloads(VETH_K), "")
    assert (veth.coalescing, veth.ring, veth.pause) == ({}, {}, {})
    assert (other.name, other.coalescing["rx-usecs"], other.ring["rx"], other.eee) == ("en p", "125", "128", "disabled")
    gone = said.replace(nothing, "netlink error: no device matches name (offset 24)\nnetlink error: No such device\n")
    with pytest.raises(BenchError, match="no interface 'va'"):
        parse_answers(gone)


def test_every_merging_feature_that_is_on_is_switched_off_and_nothing_else() -> None:
    state = NicState("va", offloads=parse_offloads(VETH_K))
    changes = planned(state, ["offloads"])
    assert [change.setting for change in changes] == [
        "tx-tcp-segmentation",
        "tx-tcp-mangleid-segmentation",
        "tx-tcp6-segmentation",
        "generic-segmentation-offload",
        "generic-receive-offload",
    ]
    assert {(change.was, change.now) for change in changes} == {("on", "off")}
    assert planned(state, []) == planned(state, ["coalescing", "eee"]) == []


def test_coalescing_off_is_one_frame_per_interrupt_which_ethtool_can_take() -> None:
    state = NicState("enp3s0", coalescing=parse_coalescing(INTEL_C))
    changes = planned(state, ["coalescing"])
    assert commands(changes) == [
        ["ethtool", "-C", "enp3s0", "adaptive-rx", "off", "rx-usecs", "0", "rx-frames", "1", "tx-usecs", "0"]
    ]
    assert commands(changes, back=True) == [
        ["ethtool", "-C", "enp3s0", "adaptive-rx", "on", "rx-usecs", "125", "rx-frames", "5", "tx-usecs", "72"]
    ]
    assert planned(NicState("eth0", coalescing=parse_coalescing(VIRTIO_C)), ["coalescing"]) == []


def test_eee_is_switched_off_only_where_it_is_enabled() -> None:
    assert planned(NicState("e", eee="enabled - inactive"), ["eee"]) == [Change("e", "eee", "eee", "on", "off")]
    assert planned(NicState("e", eee="disabled"), ["eee"]) == planned(NicState("e"), ["eee"]) == []
    assert commands([Change("e", "eee", "eee", "on", "off")]) == [["ethtool", "--set-eee", "e", "eee", "off"]]


LINKS = json.dumps(
    [
        {"ifname": "lo"},
        {"ifname": "br0"},
        {"ifname": "enp3s0", "master": "br0"},
        {"ifname": "enp4s0", "master": "br0"},
        {"ifname": "enp5s0"},
        {"ifname": "enp6s0", "master": "br1"},
        {},
    ]
).encode()


def test_the_other_port_of_the_bridge_belongs_to_the_segment() -> None:
    assert segment_interfaces(LINKS, ["enp4s0"]) == ["enp4s0", "enp3s0"]
    assert segment_interfaces(LINKS, ["br0"]) == ["br0", "enp3s0", "enp4s0"]
    assert segment_interfaces(LINKS, ["enp5s0", "gone0"]) == ["enp5s0"]
    assert segment_interfaces(b"", ["enp5s0"]) == []


def test_governors_are_counted(tmp_path: Path) -> None:
    for number, name in enumerate(("powersave", "performance", "performance")):
        folder = tmp_path / f"policy{number}"
        folder.mkdir()
        (folder / "scaling_governor").write_text(name + "\n")
    assert governors(tmp_path) == {"performance": 2, "powersave": 1}
    assert governors(tmp_path / "nothing") == {}
