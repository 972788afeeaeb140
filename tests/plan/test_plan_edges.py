"""Plans at the edge of what is allowed: the last sound value loads, the first unsound one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.errors import PlanError
from rig.plan.load import load_plan_bytes

PLAN = """\
plan: edge
inference: {{requests: {requests}, answer_tokens: {tokens}, load: {{closed: {{}}}}}}
npu: {{tokens_per_datagram: 16}}
flows:
  requests: {{from: jetson, to: board, protocol: token-v2}}
  answers: {{from: board, to: jetson, protocol: token-v2}}
checks:
  it:
    {metric}
    limits: {limits}
"""
RESPONSE = "response_time: {request: requests, response: answers}"
GAP = "gap: {of: answers}"
INNER = "gap: {of: answers, within: request_id}"
LOSS = "loss: {of: requests, answered_by: answers}"


def suggestion(metric: str, limits: str, requests: int = 300, tokens: int = 16) -> str | None:
    """None when the plan loads, else what the one fault suggests."""
    text = PLAN.format(metric=metric, limits=limits, requests=requests, tokens=tokens)
    try:
        load_plan_bytes(text.encode(), Path("x"))
    except PlanError as error:
        (fault,) = error.faults
        return fault.suggestion or fault.message
    return None


@pytest.mark.parametrize(
    "limits",
    [
        "{p50: {max: 5 ms}, p99: {max: 5 ms}, each: {max: 5 ms}}",
        "{p50: {min: 1 ms}, p99: {min: 1 ms}}",
        "{each: {min: 5 ms, max: 5 ms}}",
        "{p50: {min: 5 ms}, p99: {max: 5 ms}}",
        "{each: {max: 1 s}}",
        "{each: {max: 5 ms}, at_most: {count: 3, beyond: 4999999 ns}}",
        "{at_most: {count: 299, beyond: 1 ms}}",
        "{each: {min: 9 ms}, p50: {max: 9 ms}}",
    ],
)
def test_limits_that_can_still_decide_are_allowed(limits: str) -> None:
    assert suggestion(RESPONSE, limits) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("{each: {max: 1000000001 ns}}", "raise the timeout"),
        ("{at_most: {count: 300, beyond: 1 ms}}", "never be exceeded"),
        ("{each: {max: 5 ms}, at_most: {count: 3, beyond: 5 ms}}", "already forbids"),
        ("{each: {min: 10 ms}, p50: {max: 9 ms}}", "never both"),
    ],
)
def test_limits_just_beyond_are_not(limits: str, words: str) -> None:
    assert words in str(suggestion(RESPONSE, limits))


def test_samples_of_a_response_time_are_the_requests() -> None:
    assert suggestion(RESPONSE, "{p99: {max: 5 ms}}", 299) is None
    assert suggestion(RESPONSE, "{p99: {max: 5 ms}}", 298) == "`requests: 299` or more, or `proof: sample`"


def test_samples_of_a_gap_are_one_less_than_the_packets() -> None:
    assert suggestion(GAP, "{p99: {max: 5 ms}}", 300) is None
    assert suggestion(GAP, "{p99: {max: 5 ms}}", 299) == "`requests: 300` or more, or `proof: sample`"
    assert suggestion(GAP, "{p99: {max: 5 ms}}", 150, 17) is None
    assert suggestion(GAP, "{p99: {max: 5 ms}}", 149, 17) == "`requests: 150` or more, or `proof: sample`"


def test_samples_within_an_answer_are_one_less_than_its_datagrams() -> None:
    assert suggestion(INNER, "{p99: {max: 5 ms}}", 150, 48) is None
    assert suggestion(INNER, "{p99: {max: 5 ms}}", 149, 48) == "`requests: 150` or more, or `proof: sample`"


def test_a_count_just_below_the_requests_can_still_decide() -> None:
    assert suggestion(LOSS, "{count: {max: 299}}") is None
    assert suggestion(LOSS, "{ratio: {max: 99.99 %}}") is None


def test_a_broken_requires_is_not_also_a_missing_one() -> None:
    text = PLAN.format(metric=RESPONSE, limits="{each: {max: 1 s}}", requests=300, tokens=16)
    with pytest.raises(PlanError) as caught:
        load_plan_bytes(f"{text}requires: link-relay\nimpairment: [{{delay: 1 ms}}]\n".encode(), Path("x"))
    assert [fault.line for fault in caught.value.faults] == [11]


def test_a_check_that_shall_fail_may_ask_for_the_impossible() -> None:
    text = PLAN.format(metric=RESPONSE, limits="{p50: {max: 5 us}}", requests=300, tokens=16)
    text = text.replace("npu: {", "npu: {first_token: 3 ms, ")
    with pytest.raises(PlanError, match="scripted NPU alone takes 3 ms"):
        load_plan_bytes(text.encode(), Path("x"))
    load_plan_bytes(f"{text}expect: {{fail: [it]}}\n".encode(), Path("x"))
