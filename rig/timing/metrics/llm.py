"""TTFT, ITL and TPOT, the figures of streamed inference, on the wire or on the Jetson, never mixed.

`wire`, at the capture point, by the number of tokens that each datagram carries; those without one are passed over.
TTFT from the request to the first datagram of its answer; ITL from datagram to datagram of one answer, shared evenly by
the tokens of the later one; TPOT = (last datagram - first) / (N - 1), N all tokens of an answer that is there from its
`first` flag to its `last`.
`jetson`, by the runner's own stamps of the decoding that precedes a request: TTFT from the beginning of the request's
work (pre-processing included) to the first token; ITL from token to token; TPOT = (last - first) / (N - 1).
Mode `request` and `stream`: both. Mode `push`: ITL and TPOT on the wire.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rig.errors import PlanError
from rig.plan.metrics import Itl, ResponseTime, Tpot, Ttft
from rig.timing.flows import Packets
from rig.timing.metrics.answers import answers
from rig.timing.metrics.measurement import Decoding, Measurement, Scene, durations, present
from rig.timing.metrics.response_time import response_time


def ttft(metric: Ttft, scene: Scene) -> Measurement:
    """One sample per request."""
    if metric.source == "jetson":
        decoding = _decoding(scene)
        some = np.diff(decoding.begin) > 0
        value = decoding.token_ns[decoding.begin[:-1][some]] - decoding.start_ns[some]
        return _of_jetson("ttft", value, np.flatnonzero(some), scene.packets[metric.request], scene)
    assert metric.response is not None, "the plan's loader sees to that"
    packets = {**scene.packets, metric.response: _with_tokens(scene.packets[metric.response])}
    model = ResponseTime(request=metric.request, response=metric.response)
    return replace(response_time(model, replace(scene, packets=packets)), metric="ttft")


def itl(metric: Itl, scene: Scene) -> Measurement:
    """One sample per datagram after an answer's first (`wire`), or per token after a request's first (`jetson`)."""
    if metric.source == "jetson":
        decoding = _decoding(scene)
        owner = np.repeat(np.arange(len(decoding.start_ns)), np.diff(decoding.begin))
        inner = np.flatnonzero(np.diff(owner) == 0)
        value = decoding.token_ns[inner + 1] - decoding.token_ns[inner]
        return _of_jetson("itl", value, owner[inner], scene.packets[metric.of], scene)
    packets = scene.packets[metric.of]
    carried = _tokens_in(packets)
    position, answer = answers(packets)
    filled = carried[position] > 0
    position, answer = position[filled], answer[filled]
    inner = np.flatnonzero(np.diff(answer) == 0)
    before, after = position[inner], position[inner + 1]
    order = np.argsort(after, kind="stable")
    before, after = before[order], after[order]
    gap = packets.time_ns[after] - packets.time_ns[before]
    tokens = carried[after].astype(np.int64)
    measured = durations(
        "itl", -(-gap // tokens), packets.number[after], packets.number[before], packets.time_ns[after], "datagrams"
    )
    return replace(measured, floor_ns=gap // tokens)


def tpot(metric: Tpot, scene: Scene) -> Measurement:
    """One sample per whole answer of several datagrams (`wire`), or per request with several tokens (`jetson`)."""
    if metric.source == "jetson":
        decoding = _decoding(scene)
        count = np.diff(decoding.begin)
        some = np.flatnonzero(count > 1)
        first, last = decoding.token_ns[decoding.begin[some]], decoding.token_ns[decoding.begin[some + 1] - 1]
        measured = _of_jetson("tpot", _per(last - first, count[some] - 1), some, scene.packets[metric.of], scene)
        return replace(measured, counts={**measured.counts, **present({"of one token": int((count == 1).sum())})})
    packets = scene.packets[metric.of]
    carried = _tokens_in(packets)
    position, answer = answers(packets)
    heads = np.flatnonzero(np.diff(answer, prepend=0))
    assert packets.tokens is not None
    begun, ended = (_any(flag[position], heads) for flag in (packets.tokens.first, packets.tokens.last))
    filled = np.flatnonzero(carried[position] > 0)
    # Where the datagrams of each answer begin among those with tokens, and behind the last answer.
    begin = np.searchsorted(filled, np.append(heads, len(position)))
    count = np.diff(begin)
    total = np.diff(np.concatenate(([0], np.cumsum(carried[position[filled]], dtype=np.int64)))[begin])
    whole = begun & ended
    kept = np.flatnonzero(whole & (count > 1))
    first, last = position[filled[begin[kept]]], position[filled[begin[kept + 1] - 1]]
    return durations(
        "tpot",
        _per(packets.time_ns[last] - packets.time_ns[first], total[kept] - 1),
        packets.number[last],
        packets.number[first],
        packets.time_ns[last],
        "answers",
        counts=present(
            {
                "answers without their first datagram": int(np.count_nonzero(~begun)),
                "answers without their last datagram": int(np.count_nonzero(~ended)),
                "answers without tokens": int(np.count_nonzero(whole & (count == 0))),
                "answers of one datagram": int(np.count_nonzero(whole & (count == 1))),
            }
        ),
    )


def _any(flag: NDArray[np.bool_], heads: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the flag is set anywhere in each group; `heads`: where the groups begin."""
    return np.logical_or.reduceat(flag, heads) if len(heads) else np.empty(0, np.bool_)


def _per(span_ns: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rounded up, so that no value looks better than it is."""
    return -(-span_ns // steps)


def _tokens_in(packets: Packets) -> NDArray[np.int32]:
    if packets.tokens is None:
        raise PlanError(
            f"flow `{packets.name}` does not say how many tokens a datagram carries: nothing on the wire is per token",
            hint="add `protocol: token-v2` to the flow, or use `source: jetson`",
        )
    return packets.tokens.tokens


def _with_tokens(packets: Packets) -> Packets:
    """The packets that carry tokens; an empty chunk is no token."""
    filled = _tokens_in(packets) > 0
    if filled.all() or packets.tokens is None:
        return packets
    return replace(
        packets,
        row=packets.row[filled],
        number=packets.number[filled],
        time_ns=packets.time_ns[filled],
        sender=packets.sender[filled],
        measured=packets.measured[filled],
        tokens=packets.tokens.take(filled),
    )


def _decoding(scene: Scene) -> Decoding:
    none = np.empty(0, np.int64)
    return scene.decoding or Decoding(none.astype(np.uint32), none, np.zeros(1, np.int64), none)


def _of_jetson(
    metric: str, value: NDArray[np.int64], owner: NDArray[np.int64], requests: Packets, scene: Scene
) -> Measurement:
    """Samples of the Jetson's clock, each shown by the frame of the request that it belongs to."""
    request_id = _decoding(scene).request_id[owner]
    number, time = np.zeros(len(value), np.uint32), np.full(len(value), scene.end_ns)
    if requests.tokens is not None and len(requests):
        order = np.argsort(requests.tokens.request_id, kind="stable")
        ids = requests.tokens.request_id[order]
        at = np.minimum(np.searchsorted(ids, request_id, "left"), len(ids) - 1)
        found = ids[at] == request_id
        number[found], time[found] = requests.number[order[at[found]]], requests.time_ns[order[at[found]]]
    notes = () if scene.decoding is not None else ("no events of the Jetson's decoding are known",)
    return durations(
        metric, value, number, np.zeros(len(value), np.uint32), time, "requests", far_clock=True, notes=notes
    )
