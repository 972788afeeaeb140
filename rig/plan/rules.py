"""What no part of a plan can check alone: that names refer to something, and that every limit can decide.

Each rule yields complaints by path; none of them looks at a file. A rule keeps quiet about parts that are broken in
themselves, so that one slip is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rig.plan.comparison_rules import comparison_complaints
from rig.plan.grammar import closest, did_you_mean
from rig.plan.limit_rules import limit_complaints
from rig.plan.metrics import (
    MOST_INTERVALS,
    Burst,
    Duplicates,
    Gap,
    Ipdv,
    Itl,
    Jitter,
    Loss,
    OneWayDelay,
    Pdv,
    Reordering,
    ResponseTime,
    Throughput,
    Tpot,
    Ttft,
    Turnaround,
)
from rig.plan.model import Check, Flow
from rig.plan.subject import Complaint, Subject, datagrams_of, samples_of
from rig.plan.units import format_ns, format_share
from rig.plan.yaml_positions import Path

ALIVE = "alive"
"""The implicit check of every run: the board boots after flashing and stays up."""

LINK_RELAY = "link-relay"
POWER_SWITCH = "power-switch"
CAPTURE_POINTS = ("inline", "mirror", "tap")
CAPABILITIES = {
    LINK_RELAY: "a relay in the link can impose delay, jitter, loss, duplication, reordering and rate",
    "link-switch": "the cable between board and bench can be unplugged",
    POWER_SWITCH: "the rig can switch the board's power",
    "inline": "the bench can capture in the link itself",
    "mirror": "the bench can capture at a mirror port",
    "tap": "the bench can capture with one interface per direction",
}
"""Capabilities with a meaning of their own. A bench may list others; a plan that requires one is skipped elsewhere."""


def complaints(subject: Subject) -> Iterator[Complaint]:
    """Everything that is wrong with the plan as a whole."""
    yield from _whole(subject)
    yield from _flows(subject)
    for name, check in subject.plan.checks.items():
        yield from _metric(subject, name, check)
        yield from limit_complaints(subject, name, check)


def capability_complaint(path: Path, name: str) -> Complaint | None:
    """A capability that is nearly, but not quite, a well-known one."""
    meant = closest(name, CAPABILITIES, cutoff=0.8)
    if meant is None or name in CAPABILITIES:
        return None
    return Complaint(path, f"unknown capability `{name}`", f"did you mean `{meant}`?")


# --- the plan as a whole ----------------------------------------------------------------------------------------------


def _whole(subject: Subject) -> Iterator[Complaint]:
    plan = subject.plan
    if not subject.check_names and "checks" not in subject.broken:
        yield Complaint(("checks",), "holds no check, so nothing would be judged", at_key=True)
    if ALIVE in subject.check_names:
        yield Complaint(("checks", ALIVE), f"`{ALIVE}` is the check that every run has by itself", "rename it", True)
    for index, name in enumerate(plan.requires):
        complaint = capability_complaint(("requires", index), name)
        if complaint:
            yield complaint
    if plan.impairment and LINK_RELAY not in plan.requires and "requires" not in subject.broken:
        message = f"an impairment needs a bench with the capability `{LINK_RELAY}`"
        yield Complaint(("impairment",), message, f"add `requires: [{LINK_RELAY}]`", True)
    names = plan.expect.fail if plan.expect else []
    for index, name in enumerate(names):
        known = sorted(subject.check_names | {ALIVE} | plan.comparisons.keys())
        if name not in known and "comparisons" not in subject.broken:
            yield Complaint(
                ("expect", "fail", index), f"no check is named `{name}`", did_you_mean(name, known, "checks")
            )
        elif name in names[:index]:
            yield Complaint(("expect", "fail", index), f"`{name}` stands here twice")
        elif name in plan.comparisons and not plan.comparisons[name].bounded:
            message = f"`{name}` sets no bound, so it can never fail"
            yield Complaint(("expect", "fail", index), message, "give it `difference` or `ratio`")
    confidences: list[tuple[Path, Fraction | None]] = [(("confidence",), plan.confidence)]
    confidences += [(("checks", name, "confidence"), check.confidence) for name, check in plan.checks.items()]
    for path, confidence in confidences:
        if confidence is not None and not Fraction(1, 2) <= confidence < 1:
            message = f"a confidence of {format_share(confidence)} proves nothing"
            yield Complaint(path, message, "at least 50 % and below 100 %; 95 % is usual")
    for name, comparison in plan.comparisons.items():
        yield from comparison_complaints(subject, name, comparison)
    yield from _inference(subject)


def _inference(subject: Subject) -> Iterator[Complaint]:
    if "inference" in subject.broken:
        return
    inference = subject.plan.inference
    if inference.load.open is not None and inference.load.open.every == 0:
        yield Complaint(("inference", "load", "open", "every"), "a period of zero is no schedule", "`closed: {}`")
    if inference.timeout == 0:
        yield Complaint(("inference", "timeout"), "a timeout of zero loses every answer")
    if inference.mode == "push" and inference.load.open is None:
        message = "push mode needs the board's own tick, which `load` gives"
        yield Complaint(("inference", "load"), message, "`load: {open: {every: 5 ms}}`", True)


# --- flows ------------------------------------------------------------------------------------------------------------


def _flows(subject: Subject) -> Iterator[Complaint]:
    for name, flow in subject.plan.flows.items():
        path: Path = ("flows", name)
        udp, tcp = flow.udp_srcport or flow.udp_dstport, flow.tcp_srcport or flow.tcp_dstport
        if udp and tcp:
            yield Complaint(path, f"flow `{name}` asks for UDP and TCP ports; no packet has both", None, True)
        if flow.src is not None and flow.src == flow.dst:
            yield Complaint((*path, "to"), f"flow `{name}` goes from {flow.src} to itself")
        if flow.protocol and tcp:
            yield Complaint((*path, "protocol"), f"{flow.protocol} travels in UDP datagrams; flow `{name}` is TCP")
        spoken = subject.plan.inference.protocol
        if flow.protocol and flow.protocol != spoken and "inference" not in subject.broken:
            message = f"flow `{name}` is {flow.protocol}, but the run speaks {spoken} (`inference.protocol`)"
            yield Complaint((*path, "protocol"), message)


# --- metrics ----------------------------------------------------------------------------------------------------------


def _metric(subject: Subject, name: str, check: Check) -> Iterator[Complaint]:
    metric = check.metric
    path: Path = ("checks", name, check.metric_name)
    named = {key: getattr(metric, key, None) for key in ("of", "request", "response", "answered_by", "opposite")}
    for key, flow in named.items():
        if flow is not None and flow not in subject.flow_names and "flows" not in subject.broken:
            suggestion = did_you_mean(flow, sorted(subject.flow_names), "flows")
            yield Complaint((*path, key), f"no flow is named `{flow}`", suggestion)
    if isinstance(metric, ResponseTime):
        yield from _exchange(subject, path, metric.request, metric.response, "response")
        yield from _push_has_no_requests(subject, path)
        yield from _matchable(subject, path, metric.match, (metric.request, metric.response))
        if metric.to == "last":
            yield from _needs(subject, path, (metric.response,), "`to: last`", ("token-v2",))
    elif isinstance(metric, Loss) and metric.answered_by is not None:
        yield from _exchange(subject, path, metric.of, metric.answered_by, "answered_by")
        yield from _push_has_no_requests(subject, path)
        yield from _matchable(subject, path, metric.match, (metric.of, metric.answered_by))
    elif isinstance(metric, Loss):
        if metric.match != "request_id":
            yield Complaint((*path, "match"), "`match` has no meaning without `answered_by`")
        flow_of = subject.plan.flows.get(metric.of)
        if flow_of is not None and flow_of.src not in ("board", "jetson"):
            message = f"loss without `answered_by` needs a sender that counts, and `{metric.of}` does not name one"
            yield Complaint((*path, "of"), message, "`from: board` or `from: jetson` in the flow, or `answered_by`")
    elif isinstance(metric, Gap) and metric.within == "request_id":
        yield from _needs(subject, path, (metric.of,), "`within: request_id`", ("token-v2",))
        if samples_of(subject, check) == 0:
            message = "an answer of one datagram has no gaps within it"
            yield Complaint(path, message, "`npu: {tokens_per_datagram: N}` below `inference.answer_tokens`", True)
    elif isinstance(metric, Duplicates | Reordering):
        yield from _needs(subject, path, (metric.of,), check.metric_name, ("token-v2", "token-v1"))
    elif isinstance(metric, OneWayDelay | Pdv) and metric.opposite is not None:
        yield from _exchange(subject, path, metric.opposite, metric.of, "opposite")
        yield from _push_has_no_requests(subject, path)
        yield from _needs(subject, path, (metric.of, metric.opposite), check.metric_name, ("token-v2",))
        ends = [flow.src for name in (metric.of, metric.opposite) if (flow := subject.plan.flows.get(name))]
        if len(ends) == 2 and "board" not in ends:
            message = (
                "the board's clock is aligned with the capture's, so one of the two flows must come from the board"
            )
            yield Complaint(path, message, "`from: board` in the flow", True)
        elif isinstance(metric, Pdv) and len(ends) == 2 and ends[0] != "board":
            yield Complaint(
                (*path, "opposite"), "takes out the drift of the board's clock; `of` must come from the board"
            )
    elif isinstance(metric, Ipdv | Pdv | Jitter):
        yield from _needs(subject, path, (metric.of,), check.metric_name, ("token-v2",))
    elif isinstance(metric, Turnaround):
        yield from _needs(subject, path, (metric.of,), check.metric_name, ("token-v2",))
        flow_of = subject.plan.flows.get(metric.of)
        if flow_of is not None and flow_of.src not in ("board", None):
            yield Complaint((*path, "of"), f"turnaround is the board's, and `{metric.of}` comes from {flow_of.src}")
    elif isinstance(metric, Ttft | Itl | Tpot):
        yield from _tokens(subject, path, name, metric)
    elif isinstance(metric, Burst) and metric.within == 0:
        yield Complaint((*path, "within"), "a span of zero holds one packet")
    elif isinstance(metric, Throughput) and metric.per == 0:
        yield Complaint((*path, "per"), "an interval of zero has no rate")
    elif isinstance(metric, Throughput) and metric.per is not None:
        yield from _intervals(subject, path, metric.per)


def _intervals(subject: Subject, path: Path, per: int) -> Iterator[Complaint]:
    """An open load says how long the run takes at least."""
    inference = subject.plan.inference
    if "inference" in subject.broken or inference.load.open is None:
        return
    span = inference.requests * inference.load.open.every
    if span // per > MOST_INTERVALS:
        message = f"{format_ns(span)} of requests hold {span // per} intervals; at most {MOST_INTERVALS} are judged"
        yield Complaint((*path, "per"), message, f"`per: {format_ns(-(-span // MOST_INTERVALS))}` or longer")


def _matchable(subject: Subject, path: Path, match: str, names: tuple[str, str]) -> Iterator[Complaint]:
    if match == "request_id":
        yield from _needs(subject, path, names, "match: request_id", ("token-v2",))
    if match == "key":
        for name in names:
            flow = subject.plan.flows.get(name)
            if flow is not None and flow.key is None:
                suggestion = "add `key: {offset: 0, bytes: 2}` or `key: {field: dns.id}` to the flow"
                yield Complaint((*path, "match"), f"flow `{name}` says no key to match by", suggestion)


def _tokens(subject: Subject, path: Path, name: str, metric: Ttft | Itl | Tpot) -> Iterator[Complaint]:
    """On the wire, datagrams must say how many tokens they carry; on the Jetson, the run must decode some."""
    inference = subject.plan.inference
    known = "inference" not in subject.broken
    if metric.source == "jetson":
        if isinstance(metric, Ttft) and metric.response is not None:
            yield Complaint((*path, "response"), "`response` has no meaning with `source: jetson`")
        needs = 1 if isinstance(metric, Ttft) else 2
        if known and (inference.mode == "push" or inference.infer_tokens < needs):
            message = (
                f"the Jetson decodes {inference.infer_tokens if inference.mode != 'push' else 0} tokens per request"
            )
            yield Complaint(path, message, f"`inference.infer_tokens: {needs}` or more, not in push mode", True)
        return
    if isinstance(metric, Ttft):
        if metric.response is None:
            yield Complaint(path, "`source: wire` needs `response`, the flow of the answers", None, True)
            return
        yield from _exchange(subject, path, metric.request, metric.response, "response")
        yield from _push_has_no_requests(subject, path)
        yield from _needs(subject, path, (metric.request, metric.response), "`source: wire`", ("token-v2",))
        return
    yield from _needs(subject, path, (metric.of,), "`source: wire`", ("token-v2",))
    if samples_of(subject, subject.plan.checks[name]) == 0 and datagrams_of(subject, metric.of) == 1:
        message = "an answer of one datagram has no time between its tokens on the wire"
        yield Complaint(path, message, "`npu: {tokens_per_datagram: N}` below `inference.answer_tokens`", True)


def _exchange(subject: Subject, path: Path, request: str, response: str, key: str) -> Iterator[Complaint]:
    if request == response:
        yield Complaint((*path, key), f"`{request}` cannot answer itself")
        return
    asked, answered = subject.plan.flows.get(request), subject.plan.flows.get(response)
    if asked is None or answered is None:
        return
    for there, back in ((asked.src, answered.dst), (asked.dst, answered.src)):
        if there is not None and back is not None and there != back:
            message = (
                f"`{response}` ({_way(answered)}) does not come back the way that `{request}` goes ({_way(asked)})"
            )
            yield Complaint((*path, key), message)
            return


def _way(flow: Flow) -> str:
    return f"{flow.src or 'anywhere'} to {flow.dst or 'anywhere'}"


def _push_has_no_requests(subject: Subject, path: Path) -> Iterator[Complaint]:
    if subject.plan.inference.mode == "push" and "inference" not in subject.broken:
        message = "in push mode the board sends unasked, so no request is answered"
        yield Complaint(path, message, "use `gap`, or `loss` without `answered_by`", True)


def _needs(
    subject: Subject, path: Path, names: tuple[str, ...], what: str, protocols: tuple[str, ...]
) -> Iterator[Complaint]:
    for name in names:
        flow = subject.plan.flows.get(name)
        if flow is not None and flow.protocol not in protocols:
            says = f"flow `{name}` is {flow.protocol}" if flow.protocol else f"flow `{name}` names no protocol"
            message = f"{what} reads the datagrams' {' or '.join(protocols)} header, but {says}"
            suggestion = f"add `protocol: {protocols[0]}` to the flow" + (
                ", or `match: order`" if what == "match: request_id" else ""
            )
            yield Complaint(path, message, suggestion, True)
