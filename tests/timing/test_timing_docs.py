"""The worked examples of docs/metrics.md, run as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from timing_captures import ADDRESSES, FLOWS, JETSON, Capture, S, plan_of

from rig.plan.units import format_ns, parse_duration
from rig.protocol.token_v2 import FLAG_FIRST, FLAG_LAST
from rig.timing.flows import Selection
from rig.timing.metrics import METRICS, measure
from rig.timing.metrics.measurement import INFINITE_NS, Scene

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


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
        options = dict(zip(rest[::2], map(int, rest[1::2]), strict=True)) if len(rest) % 2 == 0 else {}
        flags = {"first": FLAG_FIRST, "last": FLAG_LAST}.get(rest[0] if rest else "", FLAG_FIRST | FLAG_LAST)
        if kind == "request":
            capture.request(at_ns, int(request_id), tokens=options.get("tokens", 1))
        else:
            capture.answer(
                at_ns, int(request_id), flags=flags, sequence=options.get("seq"), tokens=options.get("tokens", 1)
            )
    capture.arp(60 * S, 1, JETSON, JETSON)
    return capture


def test_every_metric_has_an_example() -> None:
    assert {next(iter(example["metric"])) for example in examples()} == set(METRICS)


@pytest.mark.parametrize(
    "example", list(examples()), ids=lambda example: "-".join(next(iter(example["metric"].items()))[:1])
)
def test_worked_example(example: dict[str, Any]) -> None:
    plan = plan_of({"it": example["metric"]}, flows=FLOWS)
    table = captured(example["frames"]).table()
    selection = Selection(table, ADDRESSES)
    scene = Scene(
        packets={name: selection.packets(name, flow) for name, flow in plan.flows.items()},
        timeout_ns=parse_duration(example.get("timeout", "1 s")),
        end_ns=int(table.time_ns[-1]),
        sent=example.get("sent", {}),
    )
    result = measure(plan.checks["it"], scene)
    if "samples" in example:
        values = ["lost" if value == INFINITE_NS else format_ns(value) for value in result.value_ns.tolist()]
        assert values == example["samples"]
    if "events" in example:
        assert (result.least, result.most, result.denominator) == (example["events"],) * 2 + (example["denominator"],)
    assert dict(result.counts) == example.get("counts", {})
