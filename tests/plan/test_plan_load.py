"""What a sound plan becomes: points, names, positions, limits by profile, hashes, the expanded text."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from rig.errors import PlanError
from rig.plan.bounds import DurationBound, Limits
from rig.plan.limits import effective_limits
from rig.plan.load import PlanFile, dump_plan, load_plan, load_plan_bytes

TESTPLANS = Path(__file__).parents[2] / "testplans"

TEXT = """\
plan: both
description: Some words.
firmware: {variant: copy}
inference: {requests: 1000, load: {closed: {}}}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, protocol: token-v2}
checks:
  answer-time:
    response_time: {request: requests, response: answers}
    limits:
      each: {max: 100 ms}
      p50: {max: 2 ms}
      p99: {min: 1 us, max: 20 ms}
    hardware: {p99: {max: 3 ms}, p90: {max: 2.5 ms}}
    emulated:
      each: {max: 500 ms}
"""


def load(text: str = TEXT) -> PlanFile:
    return load_plan_bytes(text.encode(), Path("testplans/both.plan.yaml"))


def test_a_plan_without_matrix_has_one_unnamed_point() -> None:
    (point,) = load().points
    assert point.name == ""
    assert point.overrides == {}
    assert point.plan == load().plan


def test_matrix_spans_all_combinations_and_leaves_the_rest_alone() -> None:
    text = TEXT + "matrix: {firmware.variant: [copy, zero_copy], inference.load.closed.in_flight: [1, 4]}\n"
    points = load(text).points
    closed = [p.plan.inference.load.closed for p in points]
    assert [p.plan.firmware.variant for p in points] == ["copy", "copy", "zero_copy", "zero_copy"]
    assert [load.in_flight for load in closed if load] == [1, 4, 1, 4]
    assert [p.name for p in points][1] == "variant-copy+in_flight-4"
    assert points[1].overrides == {"firmware.variant": "copy", "inference.load.closed.in_flight": 4}
    assert all(p.plan.matrix == {} and p.plan.checks == points[0].plan.checks for p in points)


@pytest.mark.parametrize(
    ("axis", "names"),
    [
        ("npu.first_token: [1 ms, 1.5 ms]", ["first_token-1ms", "first_token-1.5ms"]),
        ("impairment.0.loss: [0.1 %, 5 %]", ["loss-0.1pct", "loss-5pct"]),
        ("impairment.0.rate: [10 Mbit/s]", ["rate-10Mbit-s"]),
        ("flows.answers.udp.srcport: [5005, 5006]", ["udp.srcport-5005", "udp.srcport-5006"]),
        ("checks.answer-time.limits.p99.max: [20 ms, 30 ms]", ["max-20ms", "max-30ms"]),
        ("checks.answer-time.limits.p99.9: [{max: 40 ms}]", ["p99.9-0"]),
        ("description: ['a b', 'ab', 'ü']", ["description-ab-0", "description-ab-1", "description-2"]),
        ("inference.load: [{closed: {}}, {open: {every: 5 ms}}]", ["load-0", "load-1"]),
    ],
)
def test_point_names_fit_ids_keywords_and_folders(axis: str, names: list[str]) -> None:
    base = TEXT.replace("requests: 1000", "requests: 4000")
    base += "requires: [link-relay]\nimpairment: [{delay: 1 ms}]\n"
    assert [point.name for point in load(f"{base}matrix: {{{axis}}}\n").points] == names


def test_axes_with_the_same_last_part_are_named_in_full() -> None:
    axes = "checks.answer-time.limits.p99.max: [20 ms], checks.answer-time.limits.p50.max: [2 ms]"
    (point,) = load(f"{TEXT}matrix: {{{axes}}}\n").points
    first, second = point.name.split("+")
    assert first == "checks.answer-time.limits.p99.max-20ms"
    assert second == "checks.answer-time.limits.p50.max-2ms"


def test_pytest_takes_every_point_name_as_keyword() -> None:
    from _pytest.mark.expression import Expression

    text = TEXT + "matrix: {firmware.variant: [copy, zero_copy], npu.first_token: [1 ms, 2 us]}\n"
    for point in load(text).points:
        name = point.name
        assert Expression.compile(name).evaluate(lambda word, /, name=name, **_: word == name)


def test_position_leads_to_the_key_in_the_file() -> None:
    file = load()
    (point,) = file.points
    assert point.position("checks", "answer-time", "limits", "p99", "max") == (14, 24)
    assert point.position("checks", "answer-time", "hardware", "p99", "max") == (15, 22)
    assert file.position("checks", "answer-time") == (9, 3)


def test_position_of_what_the_matrix_sets_is_in_the_matrix() -> None:
    text = TEXT + "matrix:\n  checks.answer-time.limits.p99.max:\n    - 20 ms\n    - 30 ms\n"
    file = load(text)
    path = ("checks", "answer-time", "limits", "p99", "max")
    assert [point.position(*path) for point in file.points] == [(20, 7), (21, 7)]
    assert file.points[1].position("checks", "answer-time", "limits", "p50", "max") == (13, 13)
    assert file.position(*path) == (14, 24)


def test_point_by_name_and_the_names_there_are_when_it_is_not_there() -> None:
    file = load(TEXT + "matrix: {firmware.variant: [copy, zero_copy]}\n")
    assert file.point("variant-copy").plan.firmware.variant == "copy"
    with pytest.raises(PlanError, match="no point `variant-cpy`") as caught:
        file.point("variant-cpy")
    assert "variant-zero_copy" in str(caught.value)


def test_profile_replaces_and_adds_single_keys() -> None:
    check = load().plan.checks["answer-time"]
    found = effective_limits(check, "hardware")
    assert [(limit.key, limit.path) for limit in found] == [
        ("each", ("limits", "each")),
        ("p50", ("limits", "p50")),
        ("p90", ("hardware", "p90")),
        ("p99", ("hardware", "p99")),
    ]
    maxima = [limit.bound.max for limit in found if isinstance(limit.bound, DurationBound)]
    assert maxima == [100_000_000, 2_000_000, 2_500_000, 3_000_000]
    assert found[3].bound == DurationBound.model_validate({"max": "3 ms"}), "the whole key is replaced, min included"
    emulated = effective_limits(check, "emulated")
    assert [limit.path[0] for limit in emulated] == ["emulated", "limits", "limits"]


def test_limits_built_in_code_may_name_percentiles_either_way() -> None:
    bound = {"max": "5 ms"}
    assert Limits.model_validate({"p99": bound}) == Limits.model_validate({"percentiles": {"p99": bound}})


def test_the_text_is_kept_verbatim_and_gives_the_same_again() -> None:
    file = load(TEXT + "# a last remark\nmatrix: {firmware.variant: [copy, zero_copy]}\n")
    again = load_plan_bytes(file.text.encode(), file.path)
    assert again == file
    assert file.sha256 == hashlib.sha256(file.text.encode()).hexdigest()


def test_byte_order_mark_and_line_ends_stay_in_the_kept_text() -> None:
    raw = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    file = load_plan_bytes(raw, Path("x"))
    assert file.text.encode() == raw
    assert file.sha256 == hashlib.sha256(raw).hexdigest()
    assert file.points[0].position("checks", "answer-time", "limits", "p99", "max") == (14, 24)


def test_expanded_hash_follows_meaning_and_not_spelling() -> None:
    base = load().points[0].expanded_hash
    same = "requirement: NET-1\n" + TEXT.replace("Some words.", "Other words.").replace("20 ms", "20000 us").replace(
        "checks:", "# why\nchecks:"
    )
    assert load(same).points[0].expanded_hash == base
    assert load(TEXT.replace("load: {closed: {}}", "load: {closed: {in_flight: 1}}")).points[0].expanded_hash == base
    for change in (TEXT.replace("20 ms", "21 ms"), TEXT.replace("copy}", "zero_copy}"), TEXT.replace("1000", "1001")):
        assert load(change).points[0].expanded_hash != base


def test_expanded_hash_of_a_matrix_point_is_that_of_the_plan_written_out() -> None:
    text = TEXT + "matrix: {firmware.variant: [zero_copy]}\n"
    assert load(text).points[0].expanded_hash == load(TEXT.replace("copy}", "zero_copy}")).points[0].expanded_hash


@pytest.mark.parametrize("path", sorted(TESTPLANS.rglob("*.plan.yaml")), ids=lambda path: path.stem)
def test_dumped_plan_loads_to_the_same_plan(path: Path) -> None:
    for point in load_plan(path).points:
        again = load_plan_bytes(dump_plan(point).encode(), path)
        assert again.points[0].plan == point.plan.model_copy(update={"comparisons": {}})
        assert again.points[0].expanded_hash == point.expanded_hash


def test_dump_writes_null_where_null_says_something_and_quantities_with_units() -> None:
    text = dump_plan(
        load(
            TEXT + "confidence: 99.9 %\nimpairment: [{loss: 0.1 %, rate: 10 Mbit/s}]\nrequires: [link-relay]\n"
        ).points[0]
    )
    assert "max: 20 ms" in text
    assert "loss: 0.1 %" in text
    assert "rate: 10 Mbit/s" in text
    assert "confidence: 99.9 %" in text
    assert "null" not in text


def test_confidence_and_shares_are_exact() -> None:
    assert load(TEXT + "confidence: 99.9 %\n").plan.confidence == Fraction(999, 1000)


def test_the_plans_of_this_project_load_and_ask_for_enough() -> None:
    files = [load_plan(path) for path in TESTPLANS.rglob("*.plan.yaml")]
    assert {file.plan.plan for file in files} >= {
        "zero-copy-latency",
        "copy-latency",
        "copy-vs-zero-copy",
        "push-latency",
    }
    assert all(point.plan.inference.requests >= 300 for file in files for point in file.points)
    assert all(file.path.name == f"{file.plan.plan}.plan.yaml" for file in files)
    assert all(file.plan.expect and file.plan.expect.fail for file in files if file.path.parent.name == "faults")


def test_loading_does_not_import_what_it_does_not_need() -> None:
    code = (
        "import sys; import rig.bench.load; print(sorted({'numpy', 'scapy', 'paramiko', 'serial'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTPLANS.parent)
    assert out.stdout.strip() == "[]"
