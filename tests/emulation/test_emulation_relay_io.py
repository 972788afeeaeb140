"""The relay at work between real interfaces and an echoing board, in a network namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).with_name("relay_probe.py")
ROOT = PROBE.parents[2]


def probe(rules: list[dict[str, Any]], frames: list[bytes]) -> dict[str, Any]:
    command = [sys.executable, str(PROBE)]
    work = json.dumps([rules, [frame.hex() for frame in frames]])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(command, input=work, capture_output=True, text=True, env=environment, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def frame(n: int, size: int = 60) -> bytes:
    return (bytes([2]) * 12 + b"\x88\xb5" + n.to_bytes(4, "big")).ljust(size, b"\0")


def hexes(frames: list[bytes]) -> list[str]:
    return [frame.hex() for frame in frames]


def test_frames_pass_unchanged_and_every_port_sees_its_share() -> None:
    frames = [frame(n, size) for n, size in enumerate((60, 61, 600, 1514))]
    result = probe([], frames)
    seen, counters = result["seen"], result["counters"]
    assert seen["board"] == seen["board-port"] == hexes(frames)
    assert sorted(seen["mirror0"]) == sorted(hexes(frames) * 2)
    assert seen["tap-a"] == seen["tap-b"] == hexes(frames)
    assert counters["to-board"]["released"] == counters["from-board"]["released"] == 4
    assert counters["copies"] == 16
    assert not any(counters[key] for key in ("copy_errors", "link_down", "kernel_drops"))


def test_burst_beyond_what_the_emulator_queues_is_not_lost() -> None:
    frames = [frame(n, 700) for n in range(60)]
    result = probe([], frames)
    assert result["seen"]["board"] == hexes(frames)
    assert result["seen"]["board-port"] == hexes(frames)
    assert result["counters"]["kernel_drops"] == 0
    assert result["counters"]["waits_for_emulator"] > 0


def test_vlan_tag_survives() -> None:
    tagged = bytes([2]) * 12 + b"\x81\x00\x20\x05\x88\xb5" + bytes(50)
    result = probe([], [tagged])
    assert result["seen"]["board"] == [tagged.hex()]
    # towards the bench the kernel takes the tag out again and hands it beside the frame
    assert result["seen"]["board-port"] == ["tagged:" + (tagged[:12] + tagged[16:]).hex()]


def test_span_port_shows_a_request_that_the_relay_then_loses() -> None:
    result = probe([{"direction": "to-board", "loss": 1.0, "select": {"every": 2}}], [frame(n) for n in range(4)])
    assert result["seen"]["board"] == hexes([frame(0), frame(2)])
    assert result["seen"]["tap-a"] == hexes([frame(n) for n in range(4)])
    assert result["seen"]["tap-b"] == hexes([frame(0), frame(2)])
    assert result["counters"]["to-board"]["dropped_loss"] == 2


def test_answer_that_the_relay_loses_is_on_no_port() -> None:
    result = probe([{"direction": "from-board", "loss": 1.0}], [frame(0)])
    assert result["seen"]["board"] == [frame(0).hex()]
    assert result["seen"]["mirror0"] == [frame(0).hex()]
    assert result["seen"]["board-port"] == result["seen"]["tap-b"] == []


def test_delay_is_imposed_on_both_ways() -> None:
    result = probe([{"delay_ns": 40_000_000}], [frame(0)])
    assert result["seen"]["board-port"] == [frame(0).hex()]
    assert result["took_ns"] >= 80_000_000


@pytest.mark.parametrize("kind", ["duplicate", "reorder"])
def test_duplicates_and_reordering_reach_the_wire(kind: str) -> None:
    result = probe([{"direction": "to-board", kind: 1.0}], [frame(n) for n in range(2)])
    order = {"duplicate": [0, 0, 1, 1], "reorder": [1, 0]}[kind]
    assert result["seen"]["board"] == hexes([frame(n) for n in order])
