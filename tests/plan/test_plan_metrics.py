"""The grammar of metrics, limits and comparisons: what is accepted, and what is explained where it is not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from rig.errors import PlanError
from rig.plan.limits import effective_limits
from rig.plan.load import PlanFile, dump_plan, load_plan_bytes
from rig.plan.metrics import METRICS
from rig.plan.units import parse_ratio, parse_signed_duration

HEAD = """\
plan: metrics
npu: {tokens_per_datagram: 4}
inference: {requests: 400, answer_tokens: 16, infer_tokens: 4}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
  raw: {from: board, to: jetson}
  dns-q: {to: board, udp.dstport: 53, filter: dns.flags.response == 0, key: {field: dns.id}}
  dns-a: {from: board, udp.srcport: 53, key: {offset: 0, bytes: 2}}
checks:
"""

SOUND = [
    "response_time: {request: dns-q, response: dns-a, match: key}, limits: {each: {max: 1 ms}}",
    "loss: {of: dns-q, answered_by: dns-a, match: key}, limits: {count: {max: 0}}",
    "one_way_delay: {of: answers, opposite: requests}, limits: {p99: {max: 1 ms}}",
    "ipdv: {of: answers}, limits: {each: {min: -1 ms, max: 1 ms}}",
    "pdv: {of: answers, opposite: requests}, limits: {p99: {max: 1 ms}}",
    "jitter: {of: answers}, limits: {each: {max: 1 ms}, at_most: {count: 2, beyond: 1 us, in_any: 1 s}}",
    "turnaround: {of: answers, stage: queue}, limits: {p50: {max: 1 ms}}",
    "ttft: {source: wire, request: requests, response: answers}, limits: {p50: {max: 2 ms}}",
    "ttft: {source: jetson, request: requests}, limits: {p50: {max: 1 us}}",
    "itl: {source: wire, of: answers}, limits: {p99: {max: 1 ms}}",
    "tpot: {source: jetson, of: requests}, limits: {p99: {max: 1 ms}}",
    "reordering: {of: answers, n: 3}, limits: {ratio: {max: 1 %}, extent: {max: 2}, late: {max: 1 ms}}",
    "burst: {of: raw, within: 1 ms}, limits: {packets: {max: 3}}",
    "throughput: {of: raw, per: 1 s, layer: frame}, limits: {rate: {min: 1 kbit/s, max: 1 Mbit/s}}",
    "gap: {of: raw}, skip_first: 10, limits: {each: {max: 1 ms}}",
]

BROKEN = [
    ("jitter: {of: answers}, limits: {p50: {max: 1 ms}}", "`p50` does not fit jitter", "each and at_most"),
    ("burst: {of: raw, within: 1 ms}, limits: {count: {max: 3}}", "`count` does not fit burst", "takes packets"),
    ("burst: {of: raw, within: 0 ms}, limits: {packets: {max: 3}}", "a span of zero", ""),
    ("throughput: {of: raw, per: 0 s}, limits: {rate: {min: 1 bit/s}}", "an interval of zero", ""),
    ("throughput: {of: raw}, limits: {rate: {min: 2 bit/s, max: 1 bit/s}}", "no value can hold both", ""),
    ("throughput: {of: raw}, limits: {rate: {}}", "bounds nothing", ""),
    ("loss: {of: answers}, limits: {late: {max: 1 ms}}", "`late` does not fit loss", "count and ratio"),
    ("burst: {of: raw, within: 1 ms}, limits: {each: {max: 3}}", "`each` does not fit burst", "takes packets"),
    ("throughput: {of: raw}, limits: {p50: {min: 1 Mbit/s}}", "`p50` does not fit throughput", "takes rate"),
    ("gap: {of: raw}, limits: {each: {min: -1 ms}}", "'-1 ms' is negative", ""),
    ("gap: {of: raw}, limits: {at_most: {count: 1, beyond: 1 ms, in_any: 0 s}}", "a span of zero", ""),
    ("duplicates: {of: answers}, skip_first: 1, limits: {count: {max: 0}}", "`skip_first` leaves out samples", ""),
    ("ipdv: {of: raw}, limits: {each: {max: 1 ms}}", "ipdv reads the datagrams' token-v2 header", "protocol"),
    ("one_way_delay: {of: answers, opposite: answers}, limits: {each: {max: 1 ms}}", "cannot answer itself", ""),
    ("one_way_delay: {of: answers}, limits: {each: {max: 1 ms}}", "key `opposite` is missing", ""),
    ("pdv: {of: requests, opposite: answers}, limits: {each: {max: 1 ms}}", "`of` must come from the board", ""),
    ("turnaround: {of: requests}, limits: {each: {max: 1 ms}}", "turnaround is the board's", ""),
    ("ttft: {request: requests}, limits: {each: {max: 1 ms}}", "key `source` is missing", ""),
    ("ttft: {source: wire, request: requests}, limits: {each: {max: 2 ms}}", "needs `response`", ""),
    ("itl: {source: wire, of: raw}, limits: {each: {max: 1 ms}}", "`source: wire` reads", "protocol: token-v2"),
    (
        "ttft: {source: jetson, request: requests, response: answers}, limits: {each: {max: 1 ms}}",
        "no meaning with `source: jetson`",
        "",
    ),
    (
        "response_time: {request: requests, response: answers, match: key}, limits: {each: {max: 5 ms}}",
        "says no key to match by",
        "key: {offset",
    ),
    ("pdv: {of: answers}, skip_first: 1500, limits: {p99: {max: 1 ms}}", "with 100 samples", "`requests: 450`"),
]


def load(text: str) -> PlanFile:
    return load_plan_bytes(text.encode(), Path("x.plan.yaml"))


@pytest.mark.parametrize("check", SOUND)
def test_sound_checks_load_and_read_back(check: str) -> None:
    (point,) = load(f"{HEAD}  it: {{{check}}}\n").points
    again = load(dump_plan(point)).points[0]
    assert (again.plan, again.expanded_hash) == (point.plan, point.expanded_hash)


def test_every_metric_is_among_the_examples() -> None:
    named = {check.split(":")[0] for check in SOUND} | {"duplicates"}
    assert named == set(METRICS)


@pytest.mark.parametrize(("check", "message", "suggestion"), BROKEN)
def test_broken_checks_are_explained(check: str, message: str, suggestion: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(f"{HEAD}  it: {{{check}}}\n")
    assert any(message in f.message and suggestion in (f.suggestion or "") for f in caught.value.faults), caught.value


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("{key: {}}", "a key takes exactly one of bytes, field; none is there"),
        ("{key: {bytes: 2, field: dns.id}}", "here are `bytes` and `field`"),
        ("{key: {bytes: 9}}", "above the largest allowed value, 8"),
        ('{key: {field: "a b"}}', "does not fit the pattern"),
        ('{filter: ""}', ""),
    ],
)
def test_broken_keys_and_filters_are_explained(flow: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(HEAD.replace("raw: {from: board, to: jetson}", f"raw: {flow}") + "  it: {gap: {of: raw}}\n")
    assert any(message in fault.message for fault in caught.value.faults), caught.value


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("2001:DB8::2", "2001:db8::2"),
        ("2001:db8:0:0::0002", "2001:db8::2"),
        ("::FFFF:10.77.0.10", "::ffff:10.77.0.10"),
        ("10.77.0.10", "10.77.0.10"),
    ],
)
def test_addresses_are_kept_as_captures_spell_them(written: str, kept: str) -> None:
    (point,) = load(HEAD.replace("raw: {from: board", f'raw: {{from: "{written}"') + f"  it: {{{SOUND[-1]}}}\n").points
    assert point.plan.flows["raw"].src == kept


def test_an_address_with_a_zone_is_in_no_frame() -> None:
    with pytest.raises(PlanError, match="neither board"):
        load(HEAD.replace("raw: {from: board", 'raw: {from: "fe80::1%eth0"') + f"  it: {{{SOUND[-1]}}}\n")


@pytest.mark.parametrize(("per", "sound"), [("1 ns", False), ("199 ns", False), ("200 ns", True)])
def test_an_open_load_tells_how_many_intervals_there_will_be(per: str, sound: bool) -> None:
    text = HEAD.replace("requests: 400,", "requests: 400, load: {open: {every: 5 ms}},")
    text += f"  it: {{throughput: {{of: raw, per: {per}}}, limits: {{rate: {{min: 1 bit/s}}}}}}\n"
    if sound:
        load(text)
        return
    with pytest.raises(PlanError) as caught:
        load(text)
    (fault,) = caught.value.faults
    assert "2 s of requests hold" in fault.message
    assert fault.suggestion == "`per: 200 ns` or longer"


def test_effective_limits_come_in_fixed_order() -> None:
    check = (
        "reordering: {of: answers}, limits: {late: {max: 1 ms}, ratio: {max: 1 %}, count: {max: 9}, extent: {max: 2}}"
    )
    (point,) = load(f"{HEAD}  it: {{{check}}}\n").points
    limits = effective_limits(point.plan.checks["it"], "emulated")
    assert [limit.key for limit in limits] == ["count", "ratio", "extent", "late"]


def test_signed_durations_and_ratios() -> None:
    assert (parse_signed_duration("-1.5 ms"), parse_signed_duration("2 us")) == (-1_500_000, 2_000)
    assert parse_ratio("120 %") == Fraction(6, 5)
    for parse, value in ((parse_signed_duration, "--1 ms"), (parse_ratio, "-1 %"), (parse_ratio, "1.2")):
        with pytest.raises(ValueError):
            parse(value)


# --- comparisons ------------------------------------------------------------------------------------------------------

COMPARED = f"""\
{HEAD}  time: {{gap: {{of: answers}}, limits: {{p50: {{max: 5 ms}}}}}}
  lost: {{loss: {{of: answers}}, limits: {{count: {{max: 0}}}}}}
matrix: {{firmware.variant: [copy, zero_copy]}}
repeat: 5
comparisons:
  faster: {{of: time, a: variant-copy, b: variant-zero_copy, difference: {{max: -1 us}}}}
"""


def test_a_comparison_of_two_points() -> None:
    plan_file = load(COMPARED)
    comparison = plan_file.plan.comparisons["faster"]
    assert (comparison.statistic, comparison.difference.max) == ("p50", -1_000)  # type: ignore[union-attr]
    assert plan_file.position("comparisons", "faster", "difference") == (16, 61)


@pytest.mark.parametrize(
    ("old", "new", "message", "suggestion"),
    [
        ("of: time", "of: tine", "no check is named `tine`", "did you mean `time`?"),
        ("of: time", "of: lost", "whose samples are no durations", ""),
        ("a: variant-copy", "a: variant-copi", "the matrix has no point `variant-copi`", "variant-copy"),
        ("a: variant-copy", "a: variant-zero_copy", "is compared with itself", ""),
        ("repeat: 5", "repeat: 4", "4 runs of each point can never prove a difference", "`repeat: 5`"),
        ("repeat: 5", "repeat: 5\nconfidence: 99 %", "at 99 % confidence; it needs at least 7", ""),
        ("of: time", "of: time, ratio: {max: 90 %}", "takes one of `difference` and `ratio`", ""),
        ("of: time", "of: time, statistic: p100", "does not fit the pattern", ""),
        ("faster:", "time:", "`time` is a check already", ""),
        ("matrix: {firmware.variant: [copy, zero_copy]}\n", "", "no point `variant-copy`", "needs a `matrix`"),
        ("{firmware.variant:", "{repeat: [1, 2], firmware.variant:", "cannot differ", ""),
    ],
)
def test_broken_comparisons_are_explained(old: str, new: str, message: str, suggestion: str) -> None:
    with pytest.raises(PlanError) as caught:
        load(COMPARED.replace(old, new, 1))
    assert any(message in f.message and suggestion in (f.suggestion or "") for f in caught.value.faults), caught.value


def test_a_comparison_without_a_bound_needs_one_run_each() -> None:
    plan_file = load(COMPARED.replace("repeat: 5\n", "").replace(", difference: {max: -1 us}", ""))
    assert plan_file.plan.repeat == 1


def test_a_comparison_may_be_expected_to_fail_and_is_no_matter_of_a_single_run() -> None:
    plan_file = load(COMPARED + "expect: {fail: [lost, faster]}\n")
    assert plan_file.plan.expect is not None
    assert plan_file.plan.expect.fail == ["lost", "faster"]
    assert [point.plan.expect.fail for point in plan_file.points if point.plan.expect] == [["lost"]] * 2


def test_a_comparison_without_a_bound_cannot_be_expected_to_fail() -> None:
    with pytest.raises(PlanError) as caught:
        load(COMPARED.replace(", difference: {max: -1 us}", "") + "expect: {fail: [faster]}\n")
    assert [fault.message for fault in caught.value.faults] == ["`faster` sets no bound, so it can never fail"]
