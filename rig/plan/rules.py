"""What no part of a plan can check alone: that names refer to something, and that every limit can decide.

Each rule yields complaints by path; none of them looks at a file. A rule keeps quiet about parts that are broken in
themselves, so that one slip is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rig.plan.grammar import closest, did_you_mean
from rig.plan.limit_rules import limit_complaints
from rig.plan.model import Check, Duplicates, Flow, Gap, Loss, Reordering, ResponseTime
from rig.plan.subject import Complaint, Subject, samples_of
from rig.plan.units import format_share
from rig.plan.yaml_positions import Path

ALIVE = "alive"
"""The implicit check of every run: the board boots after flashing and stays up."""

LINK_RELAY = "link-relay"
CAPABILITIES = {
    LINK_RELAY: "a relay in the link can impose delay, jitter, loss, duplication, reordering and rate",
    "link-switch": "the cable between board and bench can be unplugged",
    "power-switch": "the rig can switch the board's power",
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
        known = sorted(subject.check_names | {ALIVE})
        if name not in known:
            yield Complaint(
                ("expect", "fail", index), f"no check is named `{name}`", did_you_mean(name, known, "checks")
            )
        elif name in names[:index]:
            yield Complaint(("expect", "fail", index), f"`{name}` stands here twice")
    confidences: list[tuple[Path, Fraction | None]] = [(("confidence",), plan.confidence)]
    confidences += [(("checks", name, "confidence"), check.confidence) for name, check in plan.checks.items()]
    for path, confidence in confidences:
        if confidence is not None and not Fraction(1, 2) <= confidence < 1:
            message = f"a confidence of {format_share(confidence)} proves nothing"
            yield Complaint(path, message, "at least 50 % and below 100 %; 95 % is usual")
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
    named = {key: getattr(metric, key, None) for key in ("of", "request", "response", "answered_by")}
    for key, flow in named.items():
        if flow is not None and flow not in subject.flow_names and "flows" not in subject.broken:
            suggestion = did_you_mean(flow, sorted(subject.flow_names), "flows")
            yield Complaint((*path, key), f"no flow is named `{flow}`", suggestion)
    if isinstance(metric, ResponseTime):
        yield from _exchange(subject, path, metric.request, metric.response, "response")
        yield from _push_has_no_requests(subject, path)
        if metric.match == "request_id":
            yield from _needs(subject, path, (metric.request, metric.response), "match: request_id", ("token-v2",))
        if metric.to == "last":
            yield from _needs(subject, path, (metric.response,), "`to: last`", ("token-v2",))
    elif isinstance(metric, Loss) and metric.answered_by is not None:
        yield from _exchange(subject, path, metric.of, metric.answered_by, "answered_by")
        yield from _push_has_no_requests(subject, path)
        if metric.match == "request_id":
            yield from _needs(subject, path, (metric.of, metric.answered_by), "match: request_id", ("token-v2",))
    elif isinstance(metric, Loss):
        if metric.match == "order":
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
