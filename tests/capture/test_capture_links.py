"""What ip, ethtool and dumpcap print, as text: the pure half of the recorder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rig.capture.dumpcap import Counts, read_messages, refusal
from rig.capture.links import CarrierEvent, Link, carrier_events, counter_growth, find_link, parse_links
from rig.errors import CaptureError


def listed(name: str, mac: str, flags: list[str], **more: Any) -> dict[str, Any]:
    return {"ifname": name, "address": mac, "flags": flags, **more}


def link(name: str, **more: Any) -> Link:
    state = {"mac": "02:00:00:00:00:01", "up": True, "carrier": True, "carrier_changes": 0, "frames": 0, "counters": {}}
    return Link(name, **(state | more))


def test_links_are_read_from_json() -> None:
    statistics = {
        "rx": {"packets": 7, "errors": 1, "dropped": 2, "missed_errors": 3, "bytes": 99},
        "tx": {"packets": 5, "carrier_changes": 4},
    }
    up, dark, down = parse_links(
        json.dumps(
            [
                listed(
                    "enp3s0",
                    "02:00:00:00:00:01",
                    ["BROADCAST", "UP", "LOWER_UP"],
                    stats64=statistics,
                    altnames=["rig0"],
                ),
                listed("enp4s0", "02:00:00:00:00:02", ["NO-CARRIER", "BROADCAST", "UP"]),
                {},
                listed("enp5s0", "02:00:00:00:00:03", ["BROADCAST"]),
            ]
        ).encode()
    )
    assert (up.up, up.carrier, up.carrier_changes, up.frames) == (True, True, 4, 12)
    assert up.counters == {"rx_errors": 1, "rx_dropped": 2, "rx_missed_errors": 3}
    assert (dark.up, dark.carrier) == (True, False)
    assert (down.up, down.carrier) == (False, False)
    assert find_link([up, dark], "rig0") is up
    assert find_link([up, dark], "02:00:00:00:00:02") is dark


@pytest.mark.parametrize("wanted", ["eth9", "02:00:00:00:00:09", "02:00:00:00:00:01"])
def test_a_hint_names_no_key_that_only_some_capture_points_have(wanted: str) -> None:
    with pytest.raises(CaptureError) as missing:
        find_link([link("a"), link("b")], wanted)
    assert "in section `capture` of the bench file" in str(missing.value.hint)


def test_only_counters_that_grew_are_told() -> None:
    before = link("a", counters={"rx_dropped": 5, "rx_errors": 1, "ethtool_rx_fifo": 9})
    after = link("a", counters={"rx_dropped": 8, "rx_errors": 1})
    assert counter_growth(before, after) == {"rx_dropped": 3}


MONITOR = """\
[2026-01-31T23:59:59.999999] 2: seen0@send0: <NO-CARRIER,BROADCAST,MULTICAST,UP,M-DOWN> mtu 1500 state LOWERLAYERDOWN
    link/ether 02:00:00:00:00:bb brd ff:ff:ff:ff:ff:ff
[2026-02-01T00:00:00.000001] 9: other: <BROADCAST> mtu 1500 state DOWN
[2026-02-01T00:00:00.500000] 2: seen0@send0: <NO-CARRIER,BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state DOWN
[2026-02-01T00:00:01.000000] 2: seen0@send0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP
[2026-02-01T00:00:02.000000] 2: seen0@send0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 state UP
[2026-02-01T00:00:03.000000] Deleted 2: seen0@NONE: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP
"""


def test_carrier_events_are_changes_of_our_interfaces_with_exact_times() -> None:
    midnight = 1_769_904_000_000_000_000  # 2026-02-01T00:00:00Z
    assert carrier_events(MONITOR, [link("seen0")]) == [
        CarrierEvent(midnight - 1000, "seen0", False),
        CarrierEvent(midnight + 1_000_000_000, "seen0", True),
        CarrierEvent(midnight + 3_000_000_000, "seen0", False),
    ]


def test_dumpcap_is_ready_at_file_and_not_before() -> None:
    assert not read_messages("Capturing on 'eth0'\n").ready
    assert read_messages("Capturing on 'eth0'\nFile: -\n").ready


def test_dumpcaps_counts_and_complaints_are_told_apart() -> None:
    messages = read_messages(
        'Running as user "root" and group "root". This could be dangerous.\n'
        "Capturing on 'a' and 'b c'\nFile: -\nPackets captured: 9\nThe disk is full\n"
        "Packets received/dropped on interface 'a': 5/7 (pcap:4/dumpcap:2/flushed:1/ps_ifdrop:3) (41.7%)\n"
        "Packets received/dropped on interface 'b c': 4/0 (pcap:0/dumpcap:0/flushed:0/ps_ifdrop:0) (100.0%)\n"
    )
    assert messages.counts == (Counts("a", 5, 7, 4, 2, 1, 3), Counts("b c", 4, 0, 0, 0, 0, 0))
    assert messages.complaints == ("The disk is full",)


@pytest.mark.parametrize(
    ("stderr", "what", "hint"),
    [
        ("You don't have permission to capture on that device", "may not capture on eth0", "setcap"),
        ('The capture session could not be initiated on interface "eth0" (No such device exists).', "finds no", None),
        ("That device is not up", "is down", "ip link set eth0 up"),
        ("", "ended with status 1 before it was ready", None),
    ],
)
def test_a_refusal_says_what_to_do(stderr: str, what: str, hint: str | None) -> None:
    error = refusal(stderr, "eth0", status=1)
    assert what in error.what
    assert (hint is None and error.hint is None) or (hint is not None and hint in (error.hint or ""))
