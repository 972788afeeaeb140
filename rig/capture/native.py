"""The native reading engine: the C kernel takes what is frequent, the plain reader's parsers and decoder the rest."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from rig import _native
from rig.capture import decode
from rig.capture.decode import Decoder, flow_key
from rig.capture.frames import Buffer, Interface, Parser
from rig.capture.pcap import PcapParser
from rig.capture.pcapng import PcapngParser
from rig.capture.rows import COLUMNS, STEP, Column, Cut, Progress, Rows, StepBack, new_column
from rig.timing.table import FlowKey

_LIKELY_FRAME: Final = 76
"""Bytes of the file per frame that room is made for at first: a frame of minimum size with its record header."""
_OPTIONAL: Final = {
    "cap_len": (_native.CAP_LEN, "wire_len"),
    "payload_cap": (_native.PAYLOAD_CAP, "payload_len"),
    "interface": (_native.INTERFACE, None),
}
"""Column → its bit among those that differ, and the column that it equals elsewhere (None: it is 0)."""


def read_rows(library: ctypes.CDLL, data: Buffer, parser: Parser, progress: Progress | None = None) -> Rows:
    """All frames of a capture file's bytes, decoded: the same rows as `plain.read_rows`."""
    with _kernel(library) as kernel:
        reading = _Reading(library, kernel, data, parser)
        reading.run(progress)
        return reading.rows()


@contextmanager
def _kernel(library: ctypes.CDLL) -> Iterator[int]:
    kernel = library.rig_kernel_new(decode.MAX_FLOWS)
    if not kernel:
        raise MemoryError
    try:
        yield kernel
    finally:
        library.rig_kernel_free(kernel)


class _Reading:
    """One pass over a file, taken in turns by the kernel and by the plain reader."""

    def __init__(self, library: ctypes.CDLL, kernel: int, data: Buffer, parser: Parser) -> None:
        self._library = library
        self._kernel = kernel
        self._data = data
        self._parser = parser
        self._decoder = _Decoder(library, kernel)
        self._store: dict[str, Column] = {}
        self._columns = _native.Columns()
        self._make_room(len(data) // _LIKELY_FRAME + 64)
        self._interfaces = 0
        self._untimed = 0
        self._first_ns: dict[int, int] = {}
        """Row → time of its datagram's first fragment, where it is another frame."""

    def run(self, progress: Progress | None) -> None:
        data, parser = self._data, self._parser
        octets = np.frombuffer(data, np.uint8)
        read = self._library.rig_read_pcapng if isinstance(parser, PcapngParser) else self._library.rig_read_pcap
        cursor = _native.Cursor()
        tell_at = STEP
        self._take_one(0)
        while parser.consumed < len(data) and not parser.stopped:
            self._announce_interfaces()
            cursor.position, cursor.number = parser.consumed, parser.number
            cursor.limit = min(len(data), cursor.position + STEP)
            if isinstance(parser, PcapngParser):
                cursor.big_endian, cursor.first = parser.order == ">", parser.first
            elif isinstance(parser, PcapParser):
                cursor.big_endian, cursor.to_ns = parser.order == ">", parser.to_ns
            status = read(self._kernel, octets.ctypes.data, len(octets), cursor, self._columns)
            parser.consumed, parser.number = cursor.position, cursor.number
            if status == _native.NO_MEMORY:
                raise MemoryError
            if status == _native.FULL:
                self._make_room(2 * self._columns.capacity)
            elif status == _native.LEFT:
                self._take_one(cursor.position)
            if progress is not None and parser.consumed >= tell_at:
                progress(parser.consumed, len(data))
                tell_at = parser.consumed + STEP

    def rows(self) -> Rows:
        count = self._columns.rows
        columns = {name: column[:count] for name, column in self._store.items()}
        for name, (bit, same) in _OPTIONAL.items():
            if not self._columns.differs & bit:
                columns[name] = columns[same] if same else np.broadcast_to(np.zeros(1, COLUMNS[name]), (count,))
        columns["first_ns"] = columns["time_ns"]
        if self._first_ns:
            columns["first_ns"] = new_column("first_ns", count)
            columns["first_ns"][:] = columns["time_ns"]
            columns["first_ns"][list(self._first_ns)] = list(self._first_ns.values())
        states = self._interface_states()
        counted = self._columns
        return Rows(
            columns=columns,
            flows=self._decoder.listed(),
            joined=self._decoder.joined,
            untimed=self._untimed,
            incomplete=self._decoder.joiner.incomplete,
            not_listed=int(self._library.rig_not_listed(self._kernel)),
            in_order=not counted.unsorted,
            cut=Cut(counted.cut, counted.cut_number, counted.cut_cap_len, counted.cut_wire_len)
            if counted.cut
            else None,
            frames={index: state.frames for index, state in states if state.frames},
            steps_back=[StepBack(index, state.back_number, state.back_ns) for index, state in states if state.back_ns],
        )

    def _take_one(self, begin: int) -> None:
        """The record at `begin`, by the plain reader."""
        data, interfaces = self._data, self._parser.interfaces
        for number, time_ns, interface, wire, captured, offset in self._parser.frames(
            data, 0, final=True, begin=begin, once=True
        ):
            if time_ns is None:
                self._untimed += 1
                continue
            self._announce_interfaces()
            linktype = interfaces[interface].linktype
            proto, flow, payload_off, length, held, first_ns = self._decoder.decode(
                data, offset, captured, wire, linktype, time_ns, interface
            )
            if first_ns != time_ns:
                self._first_ns[self._columns.rows] = first_ns
            row = _native.Row(time_ns, payload_off, number, wire, captured, length, held, flow, interface, proto)
            if self._library.rig_put(self._kernel, self._columns, row) == _native.FULL:
                self._make_room(2 * self._columns.capacity)
                self._library.rig_put(self._kernel, self._columns, row)

    def _announce_interfaces(self) -> None:
        for interface in self._parser.interfaces[self._interfaces :]:
            if self._library.rig_add_interface(self._kernel, interface.linktype, *_scale(interface)):
                raise MemoryError
            self._interfaces += 1

    def _interface_states(self) -> list[tuple[int, _native.InterfaceState]]:
        states = []
        for index in range(self._interfaces):
            state = _native.InterfaceState()
            self._library.rig_get_interface(self._kernel, index, state)
            states.append((index, state))
        return states

    def _make_room(self, capacity: int) -> None:
        count = self._columns.rows
        for name in COLUMNS:
            if name == "first_ns":
                continue
            larger = new_column(name, capacity)
            bit = _OPTIONAL[name][0] if name in _OPTIONAL else 0
            if count and (not bit or self._columns.differs & bit):
                larger[:count] = self._store[name][:count]
            self._store[name] = larger
            setattr(self._columns, name, larger.ctypes.data)
        self._columns.capacity = capacity


class _Decoder(Decoder):
    """The plain decoder, with its flows in the kernel's table."""

    def __init__(self, library: ctypes.CDLL, kernel: int) -> None:
        super().__init__()
        self._library = library
        self._kernel = kernel
        self._deep: dict[tuple[tuple[int, ...], bytes, bytes, int, int, int], int] = {}
        """Flows with more VLAN tags than the kernel's table holds."""

    def flow(self, vlans: tuple[int, ...], src: bytes, dst: bytes, proto: int, srcport: int, dstport: int) -> int:
        if len(vlans) > _native.MAX_VLANS:
            key = (vlans, src, dst, proto, srcport, dstport)
            index = self._deep.get(key)
            if index is None:
                index = self._find(_native.Flow())
                if index >= 0:
                    self._deep[key] = index
            return index
        flow = _native.Flow(srcport=srcport, dstport=dstport, vlan_count=len(vlans), address_size=len(src), proto=proto)
        flow.vlans[: len(vlans)] = vlans
        flow.src[: len(src)] = src
        flow.dst[: len(dst)] = dst
        return self._find(flow)

    def listed(self) -> list[FlowKey]:
        """All flows, the kernel's and those found here."""
        deep = {index: flow_key(*key) for key, index in self._deep.items()}
        count = ctypes.c_uint32()
        flows = self._library.rig_flows(self._kernel, count)
        keys = []
        for index in range(count.value):
            if index in deep:
                keys.append(deep[index])
                continue
            flow = flows[index]
            size = flow.address_size
            keys.append(
                flow_key(
                    tuple(flow.vlans[: flow.vlan_count]),
                    bytes(flow.src[:size]),
                    bytes(flow.dst[:size]),
                    flow.proto,
                    flow.srcport,
                    flow.dstport,
                )
            )
        return keys

    def _find(self, flow: _native.Flow) -> int:
        index = int(self._library.rig_find_flow(self._kernel, flow))
        if index < _native.NOT_LISTED:
            raise MemoryError
        return index


def _scale(interface: Interface) -> tuple[int, int, int]:
    """(whole ns per tick or 0, ticks per second, offset in ns); all 0 where the kernel is to leave the frames alone."""
    offset_ns = interface.offset_s * 1_000_000_000
    if not -(1 << 63) <= offset_ns < 1 << 63 or interface.ticks_per_s >= 1 << 63:
        return 0, 0, 0
    whole, rest = divmod(1_000_000_000, interface.ticks_per_s)
    return (0 if rest else whole), interface.ticks_per_s, offset_ns
