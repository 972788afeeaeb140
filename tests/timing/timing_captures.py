"""Frame tables made by hand: synthetic frames with known timing, for the tests of this room."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from rig.plan.bounds import AtMost, CountBound, DurationBound, ShareBound
from rig.plan.metrics import DURATIONS
from rig.plan.model import Plan
from rig.protocol import token_v1, token_v2
from rig.protocol.token_v2 import ANSWER, ERROR, FLAG_FIRST, FLAG_LAST, REQUEST, SENTINEL, Header
from rig.timing.evidence import Evidence
from rig.timing.flows import Packets
from rig.timing.judge import judge
from rig.timing.limits import LimitSpec
from rig.timing.metrics.measurement import Sent
from rig.timing.table import PROTO_ARP, PROTO_UDP, FlowKey, FrameTable, InterfaceInfo, ReaderFinding
from rig.timing.verdict import PointResult

BOARD, JETSON = "10.77.0.10", "10.77.0.20"
ADDRESSES = {"board": BOARD, "jetson": JETSON, "rig": "10.77.0.2"}
US, MS, S = 1_000, 1_000_000, 1_000_000_000
BOOT, RUNNER = 0xB007, 0x1E7
T0 = 1_700_000_000 * S
"""Capture time of a builder's zero, so that times do not fit into a float64 to the nanosecond."""


class Capture:
    """Collects frames at times relative to T0 and makes a table of them; sequence numbers count by themselves."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, FlowKey | None, bytes, int]] = []
        self.sequence = {"jetson": 0, "board": 0}

    def udp(
        self, at_ns: int, src: str, dst: str, sport: int, dport: int, payload: bytes, captured: int | None = None
    ) -> None:
        key = FlowKey((), src, dst, PROTO_UDP, sport, dport)
        held = len(payload) if captured is None else captured
        self.frames.append((T0 + at_ns, PROTO_UDP, key, payload, held))

    def to_board(self, at_ns: int, payload: bytes, captured: int | None = None) -> None:
        self.udp(at_ns, JETSON, BOARD, 40000, 5005, payload, captured)

    def from_board(self, at_ns: int, payload: bytes, captured: int | None = None) -> None:
        self.udp(at_ns, BOARD, JETSON, 5005, 40000, payload, captured)

    def request(
        self, at_ns: int, request_id: int, *, sequence: int | None = None, tokens: int = 1, boot: int = RUNNER
    ) -> None:
        header = Header(type=REQUEST, request_id=request_id, sequence=self._next("jetson", sequence), boot_id=boot)
        self.to_board(at_ns, token_v2.encode(header, token_v2.encode_request(tokens, [7, 8])))

    def answer(
        self,
        at_ns: int,
        request_id: int,
        *,
        sequence: int | None = None,
        flags: int = FLAG_FIRST | FLAG_LAST,
        tokens: int = 1,
        boot: int = BOOT,
        kind: int = ANSWER,
        **stamps: int,
    ) -> None:
        """stamps: t_rx_ns, t_ready_ns, t_send_ns, prev_queued_ns."""
        header = Header(
            type=kind,
            flags=flags,
            request_id=request_id,
            sequence=self._next("board", sequence),
            boot_id=boot,
            **stamps,
        )
        self.from_board(at_ns, token_v2.encode(header, token_v2.encode_tokens(range(tokens))))

    def error(self, at_ns: int, request_id: int) -> None:
        self.answer(at_ns, request_id, kind=ERROR, tokens=0)

    def sentinel(
        self,
        at_ns: int,
        kind: int,
        *,
        answered_at: int | None = None,
        counters: Sequence[int] = (0,) * 8,
        boot: int = BOOT,
        sequence: int | None = None,
    ) -> None:
        number = self._next("jetson", sequence)
        self.to_board(at_ns, token_v2.sentinel(kind, sequence=number, boot_id=RUNNER))
        if answered_at is not None:
            header = Header(
                type=SENTINEL,
                flags={1: FLAG_FIRST, 2: FLAG_LAST}[kind],
                request_id=0xFFFF_FFFF - kind,
                sequence=self._next("board", None),
                boot_id=boot,
            )
            self.from_board(answered_at, token_v2.encode(header, struct.pack("<8I", *counters)))

    def v1_request(self, at_ns: int, sequence: int, *, tokens: int = 4) -> None:
        self.to_board(at_ns, token_v1.encode(sequence & 0xFFFF, [tokens]))

    def v1_answer(self, at_ns: int, sequence: int, tokens: Sequence[int] = (1, 2, 3, 4)) -> None:
        self.from_board(at_ns, token_v1.encode(sequence & 0xFFFF, tokens))

    def arp(self, at_ns: int, operation: int, sender: str, target: str) -> None:
        packet = struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation)
        packet += bytes(6) + socket.inet_aton(sender) + bytes(6) + socket.inet_aton(target)
        self.frames.append((T0 + at_ns, PROTO_ARP, None, packet, len(packet)))

    def table(self, findings: Sequence[ReaderFinding] = (), interfaces: Sequence[InterfaceInfo] = ()) -> FrameTable:
        order = sorted(range(len(self.frames)), key=lambda i: self.frames[i][0])
        flows: dict[FlowKey, int] = {}
        data = bytearray(b"\xee" * 14)
        offsets, index = [], []
        for i in order:
            _, _, key, payload, held = self.frames[i]
            index.append(-1 if key is None else flows.setdefault(key, len(flows)))
            offsets.append(len(data))
            data += payload[:held] + b"\xee" * 3
        picked = [self.frames[i] for i in order]
        time = np.array([frame[0] for frame in picked], np.int64)
        length = np.array([len(frame[3]) for frame in picked], np.uint32)
        held_all = np.array([frame[4] for frame in picked], np.uint32)
        return FrameTable(
            # Frames are numbered as they were captured, from 1.
            number=np.array(order, np.uint32) + np.uint32(1),
            time_ns=time,
            first_ns=time,
            interface=np.zeros(len(order), np.uint16),
            wire_len=length + np.uint32(42),
            cap_len=held_all + np.uint32(42),
            proto=np.array([frame[1] for frame in picked], np.uint8),
            flow=np.array(index, np.int32),
            payload_off=np.array(offsets, np.uint64),
            payload_len=length,
            payload_cap=held_all,
            flows=tuple(flows),
            data=bytes(data),
            findings=tuple(findings),
            interfaces=tuple(interfaces),
        )

    def _next(self, side: str, sequence: int | None) -> int:
        if sequence is None:
            sequence = self.sequence[side]
        self.sequence[side] = (sequence + 1) & 0xFFFF_FFFF
        return sequence


FLOWS: dict[str, Any] = {
    "requests": {"from": "jetson", "to": "board", "udp.dstport": 5005, "protocol": "token-v2"},
    "answers": {"from": "board", "to": "jetson", "udp.srcport": 5005, "protocol": "token-v2"},
}
FLOWS_V1: dict[str, Any] = {name: {**flow, "protocol": "token-v1"} for name, flow in FLOWS.items()}
FLOWS_RAW: dict[str, Any] = {
    name: {key: value for key, value in flow.items() if key != "protocol"} for name, flow in FLOWS.items()
}


_SOME_LIMIT: dict[str, Any] = {
    **{key: {"each": {"max": "1 s"}} for key in DURATIONS},
    **{key: {"count": {"max": 0}} for key in ("loss", "duplicates", "reordering")},
    "burst": {"packets": {"max": 1}},
    "throughput": {"rate": {"min": "1 bit/s"}},
}


def plan_of(
    checks: Mapping[str, Mapping[str, Any]], *, flows: Mapping[str, Any] = FLOWS, timeout: str = "1 s", **inference: Any
) -> Plan:
    """A plan of the checks' metrics; their limits are given to `judge` apart."""
    return Plan.model_validate(
        {
            "plan": "made-by-hand",
            "inference": {"timeout": timeout, "requests": 1, **inference},
            "flows": dict(flows),
            "checks": {name: {"limits": _SOME_LIMIT[next(iter(check))], **check} for name, check in checks.items()},
        }
    )


def each(max_ns: int | None = None, min_ns: int | None = None) -> LimitSpec:
    return LimitSpec("each", DurationBound.model_construct(max=max_ns, min=min_ns), "x.plan.yaml", 14, 9)


def percentile(key: str, max_ns: int | None = None, min_ns: int | None = None) -> LimitSpec:
    return LimitSpec(key, DurationBound.model_construct(max=max_ns, min=min_ns), "x.plan.yaml", 15, 9)


def at_most(count: int, beyond_ns: int, in_any_ns: int | None = None) -> LimitSpec:
    bound = AtMost.model_construct(count=count, beyond=beyond_ns, in_any=in_any_ns)
    return LimitSpec("at_most", bound, "x.plan.yaml", 16, 9)


def count_of(most: int) -> LimitSpec:
    return LimitSpec("count", CountBound(max=most), "x.plan.yaml", 17, 9)


def ratio(share: Fraction) -> LimitSpec:
    return LimitSpec("ratio", ShareBound.model_construct(max=share), "x.plan.yaml", 18, 9)


def run(
    capture: Capture,
    checks: Mapping[str, tuple[Mapping[str, Any], Sequence[LimitSpec]]],
    evidence: Evidence | None = None,
    *,
    findings: Sequence[ReaderFinding] = (),
    interfaces: Sequence[InterfaceInfo] = (),
    e_ns: int = 0,
    flows: Mapping[str, Any] = FLOWS,
    timeout: str = "1 s",
    **inference: Any,
) -> PointResult:
    """Judge a capture: check name → (its metric as in a plan, its limits)."""
    plan = plan_of({name: metric for name, (metric, _) in checks.items()}, flows=flows, timeout=timeout, **inference)
    return judge(
        capture.table(findings, interfaces),
        plan,
        {name: limits for name, (_, limits) in checks.items()},
        evidence or Evidence(),
        ADDRESSES,
        e_ns,
        "emulated",
    )


def sent_of(packets: Mapping[str, Packets], counts: Mapping[str, int]) -> dict[str, Sent]:
    """What the senders of whole flows counted over the measured window."""
    return {
        name: Sent.exactly(count, int(np.count_nonzero(packets[name].measured & packets[name].stream.first_copy)))
        for name, count in counts.items()
    }


RESPONSE_TIME = {"response_time": {"request": "requests", "response": "answers"}}
TO_LAST = {"response_time": {"request": "requests", "response": "answers", "to": "last"}}
BY_ORDER = {"response_time": {"request": "requests", "response": "answers", "match": "order"}}
GAP = {"gap": {"of": "answers"}}
LOSS = {"loss": {"of": "requests", "answered_by": "answers"}}
COUNTED_LOSS = {"loss": {"of": "answers"}}
DUPLICATES = {"duplicates": {"of": "answers"}}
REORDERING = {"reordering": {"of": "answers"}}


def healthy(count: int = 300, *, response_ns: int = 2 * MS, every_ns: int = 5 * MS, sentinels: bool = True) -> Capture:
    """`count` answered requests between answered sentinels; the capture goes on 2 s after the last."""
    capture = Capture()
    if sentinels:
        capture.sentinel(0, 1, answered_at=1 * MS)
    for i in range(count):
        at = 10 * MS + i * every_ns
        capture.request(at, i + 1)
        capture.answer(at + response_ns, i + 1)
    end = 10 * MS + count * every_ns + 2 * S
    if sentinels:
        capture.sentinel(end, 2, answered_at=end + 1 * MS, counters=(count, 0, count, 0, 0, 0, 1, 0))
    else:
        capture.arp(end, 2, BOARD, JETSON)
    return capture
