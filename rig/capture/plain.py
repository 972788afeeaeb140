"""The plain reading engine: frame by frame in Python, written to be checked.

It is the reference that the native engine is compared with, and what reads where that was not built.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rig.capture.decode import ETHERNET, Decoder
from rig.capture.frames import Buffer, Parser
from rig.capture.rows import COLUMNS, STEP, Cut, Progress, Rows, StepBack
from rig.timing.table import PROTO_UDP

_ORDER: Final = (
    "time_ns",
    "first_ns",
    "payload_off",
    "number",
    "wire_len",
    "cap_len",
    "payload_len",
    "payload_cap",
    "flow",
    "interface",
    "proto",
)
_ROW = struct.Struct("<qqQIIIIIiHB")
_ROW_TYPE = np.dtype([(name, COLUMNS[name]) for name in _ORDER])

_PLAIN_UDP = struct.Struct(">12xHBxH2xHxB2x4s4sHHH").unpack_from
"""Ethertype, version and header length, total length, fragment field, protocol, addresses, ports, UDP length of an
untagged Ethernet frame with an IPv4 header without options."""


def read_rows(data: Buffer, parser: Parser, progress: Progress | None = None) -> Rows:
    """All frames of a capture file's bytes, decoded."""
    decoder = Decoder()
    packed, untimed = _decode_all(data, parser, decoder, progress)
    rows = np.frombuffer(packed, dtype=_ROW_TYPE)
    cut = rows[rows["cap_len"] < rows["wire_len"]]
    first = [int(cut[name][0]) for name in ("number", "cap_len", "wire_len")] if len(cut) else []
    interfaces, frames = np.unique(rows["interface"], return_counts=True)
    return Rows(
        columns={name: np.ascontiguousarray(rows[name]) for name in COLUMNS},
        flows=decoder.flows,
        joined=decoder.joined,
        untimed=untimed,
        incomplete=decoder.joiner.incomplete,
        not_listed=decoder.not_listed,
        in_order=bool((rows["time_ns"][1:] >= rows["time_ns"][:-1]).all()),
        cut=Cut(len(cut), *first) if first else None,
        frames={int(index): int(count) for index, count in zip(interfaces, frames, strict=True)},
        steps_back=_steps_back(rows),
    )


def _decode_all(data: Buffer, parser: Parser, decoder: Decoder, progress: Progress | None) -> tuple[bytearray, int]:
    """Packed rows of all frames that have a time, and the number of those that have none."""
    rows = bytearray()
    pack, plain_udp, decode, interfaces = _ROW.pack, _PLAIN_UDP, decoder.decode, parser.interfaces
    plain_flows: dict[tuple[bytes, bytes, int, int], int] = {}
    untimed = 0
    tell_at = STEP if progress is not None else len(data)
    for number, time_ns, interface, wire, captured, offset in parser.frames(data, 0, final=True):
        if offset > tell_at and progress is not None:
            progress(offset, len(data))
            tell_at = offset + STEP
        linktype = interfaces[interface].linktype
        if time_ns is None:
            untimed += 1
            continue
        if linktype == ETHERNET and captured >= 42:
            ethertype, first, total, fragment, proto, src, dst, srcport, dstport, udp = plain_udp(data, offset)
            if (
                ethertype == 0x0800
                and first == 0x45
                and proto == 17
                and not fragment & 0x3FFF
                and 8 <= udp <= total - 20
            ):
                key = (src, dst, srcport, dstport)
                flow = plain_flows.get(key)
                if flow is None:
                    flow = decoder.flow((), src, dst, PROTO_UDP, srcport, dstport)
                    if flow >= 0:
                        plain_flows[key] = flow
                length = udp - 8
                held = captured - 42
                rows += pack(
                    time_ns,
                    time_ns,
                    offset + 42,
                    number,
                    wire,
                    captured,
                    length,
                    length if length <= held else held,
                    flow,
                    interface,
                    PROTO_UDP,
                )
                continue
        proto, flow, payload_off, length, held, first_ns = decode(
            data, offset, captured, wire, linktype, time_ns, interface
        )
        rows += pack(time_ns, first_ns, payload_off, number, wire, captured, length, held, flow, interface, proto)
    return rows, untimed


def _steps_back(rows: NDArray[np.void]) -> list[StepBack]:
    """The largest step back of each interface that has any."""
    order = np.argsort(rows["interface"], kind="stable")
    interface, time_ns, number = rows["interface"][order], rows["time_ns"][order], rows["number"][order]
    worst: dict[int, StepBack] = {}
    for at in np.flatnonzero((time_ns[1:] < time_ns[:-1]) & (interface[1:] == interface[:-1])):
        index, by_ns = int(interface[at]), int(time_ns[at]) - int(time_ns[at + 1])
        if index not in worst or by_ns > worst[index].by_ns:
            worst[index] = StepBack(index, int(number[at + 1]), by_ns)
    return list(worst.values())
