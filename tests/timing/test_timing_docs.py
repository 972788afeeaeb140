"""The worked examples of docs/metrics.md, run as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from timing_captures import ADDRESSES, FLOWS, JETSON, Capture, S, plan_of, sent_of

from rig.plan.units import format_ns, format_rate, parse_duration
from rig.protocol.token_v2 import FLAG_FIRST, FLAG_LAST
from rig.timing.flows import Selection
from rig.timing.metrics import METRICS, measure
from rig.timing.metrics.measurement import INFINITE_NS, Decoding, Scene

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


STAMPS = {"rx": "t_rx_ns", "ready": "t_ready_ns", "sent": "t_send_ns", "queued": "prev_queued_ns"}


def examples() -> Iterator[dict[str, Any]]:
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        example = yaml.safe_load(block)
        if "metric" in example:
            yield example


def captured(frames: list[str]) -> Capture:
    capture = Capture()
    for frame in frames:
        number, unit, kind, request_id, *rest = frame.split()
        at_ns = parse_duration(f"{number} {unit}")
        named = {"first": FLAG_FIRST, "last": FLAG_LAST, "inner": 0}
        flags = named[rest.pop(0)] if rest and rest[0] in named else FLAG_FIRST | FLAG_LAST
        text = " ".join(rest)
        options = {key: int(value) for key, value in re.findall(r"(seq|tokens) (\d+)", text)}
        stamps = {
            field: parse_duration(value)
            for key, field in STAMPS.items()
            for value in re.findall(rf"\b{key} ([\d.]+ \w+)", text)
        }
        if kind == "request":
            capture.request(at_ns, int(request_id), tokens=options.get("tokens", 1))
        else:
            capture.answer(
                at_ns,
                int(request_id),
                flags=flags,
                sequence=options.get("seq"),
                tokens=options.get("tokens", 1),
                **stamps,
            )
    capture.arp(60 * S, 1, JETSON, JETSON)
    return capture


def decoded(requests: list[str]) -> Decoding:
    """`request 1 from 0 ms tokens 2 ms, 3 ms` → the Jetson's events."""
    request_id, start, token, begin = [], [], [], [0]
    for text in requests:
        number, since, tokens = re.fullmatch(r"request (\d+) from (.*) tokens (.*)", text).groups()
        request_id.append(int(number))
        start.append(parse_duration(since))
        token += [parse_duration(each) for each in tokens.split(", ")]
        begin.append(len(token))
    return Decoding(np.array(request_id, np.uint32), np.array(start), np.array(begin), np.array(token))


def test_every_metric_has_an_example() -> None:
    assert {next(iter(example["metric"])) for example in examples()} == set(METRICS)


@pytest.mark.parametrize(
    "example", list(examples()), ids=lambda example: "-".join(next(iter(example["metric"].items()))[:1])
)
def test_worked_example(example: dict[str, Any]) -> None:
    plan = plan_of({"it": example["metric"]}, flows=FLOWS)
    table = captured(example["frames"]).table()
    selection = Selection(table, ADDRESSES)
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    scene = Scene(
        packets=packets,
        timeout_ns=parse_duration(example.get("timeout", "1 s")),
        end_ns=int(table.time_ns[-1]),
        sent=sent_of(packets, example.get("sent", {})),
        decoding=decoded(example["decoded"]) if "decoded" in example else None,
    )
    result = measure(plan.checks["it"], scene)
    if "samples" in example:
        shown = {"durations": format_ns, "events": format_ns, "rates": format_rate, "packets": int}[result.kind]
        values = ["lost" if value == INFINITE_NS else shown(value) for value in result.value_ns.tolist()]
        assert values == example["samples"]
    if "error" in example:
        assert format_ns(result.error_ns) == example["error"]
    if "extent" in example:
        assert result.extent is not None
        assert result.extent.tolist() == example["extent"]
    if "events" in example:
        assert (result.least, result.most, result.denominator) == (example["events"],) * 2 + (example["denominator"],)
    assert dict(result.counts) == example.get("counts", {})
