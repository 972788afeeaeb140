"""The plain reader: a capture file to a frame table, exact to the nanosecond.

It is the reference that faster readers are compared with, and what is used where they cannot be built.
"""

from __future__ import annotations

import gzip
import mmap
import struct
import tempfile
import zlib
from pathlib import Path
from typing import IO, Final

import numpy as np

from rig.capture.decode import ETHERNET, JOINED, LINKTYPE_NAMES, SUPPORTED, Decoder
from rig.capture.frames import Buffer, Findings, Interface, Parser
from rig.capture.pcap import PcapParser, is_pcap
from rig.capture.pcapng import PcapngParser, is_pcapng
from rig.errors import CaptureError
from rig.timing.table import PROTO_UDP, FrameTable, InterfaceInfo, ReaderFinding

_MAP_FROM: Final = 64 << 20
"""Files larger than this are mapped, not read: their bytes then cost no anonymous memory."""
_MAX_UNPACKED: Final = 64 << 30

_ROW = struct.Struct("<qqQIIIIIiHB")
_ROW_TYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("first_ns", "<i8"),
        ("payload_off", "<u8"),
        ("number", "<u4"),
        ("wire_len", "<u4"),
        ("cap_len", "<u4"),
        ("payload_len", "<u4"),
        ("payload_cap", "<u4"),
        ("flow", "<i4"),
        ("interface", "<u2"),
        ("proto", "u1"),
    ]
)

_PLAIN_UDP = struct.Struct(">12xHBxH2xHxB2x4s4sHHH").unpack_from
"""Ethertype, version and header length, total length, fragment field, protocol, addresses, ports, UDP length of an
untagged Ethernet frame with an IPv4 header without options."""


def read_capture(path: Path) -> FrameTable:
    """All frames of a pcap or pcapng file (plain or gzip), sorted by time.

    Raises CaptureError when the file cannot be opened or is no capture file. Damage further on is a finding of the
    table, which then holds everything that is sound. Frames without a time stamp are in no row, only in a finding.
    """
    findings = Findings()
    try:
        data = _load(path, findings)
    except OSError as error:
        raise CaptureError(f"cannot read the capture file {path}: {error.strerror or error}") from error
    parser = parser_for(bytes(data[:16]), path)
    decoder = Decoder()
    rows, untimed = _decode_all(data, parser, decoder)
    return _table(data, np.frombuffer(rows, dtype=_ROW_TYPE), parser, decoder, findings, untimed)


def parser_for(head: bytes, path: Path) -> Parser:
    """The parser for a file that begins with `head`; CaptureError when it is no capture file."""
    if is_pcapng(head):
        return PcapngParser()
    if is_pcap(head):
        return PcapParser()
    if not head:
        raise CaptureError(f"the capture file {path} is empty", hint="the recorder ended before it wrote anything")
    if head[:4] == b"\x28\xb5\x2f\xfd":
        raise CaptureError(f"{path} is compressed with zstd", hint=f"unpack it first: zstd -d {path}")
    raise CaptureError(
        f"{path} is no capture file: it begins with {head[:4].hex(' ')}",
        hint="pcap and pcapng files are read, plain or gzip; `capinfos FILE` names other formats",
    )


def _load(path: Path, findings: Findings) -> Buffer:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return _contents(file)
        with tempfile.TemporaryFile() as unpacked:
            _unpack(file, unpacked, findings)
            unpacked.seek(0)
            return _contents(unpacked)


def _unpack(packed: IO[bytes], unpacked: IO[bytes], findings: Findings) -> None:
    size = 0
    try:
        with gzip.GzipFile(fileobj=packed) as stream:
            while chunk := stream.read1(1 << 20):
                size += len(chunk)
                if size > _MAX_UNPACKED:
                    findings.add("cut-file", "the unpacked capture is too large", f"more than {_MAX_UNPACKED} bytes")
                    return
                unpacked.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        findings.add("cut-file", "the gzip stream is damaged", f"after {size} unpacked bytes: {error}")


def _contents(file: IO[bytes]) -> Buffer:
    size = file.seek(0, 2)
    file.seek(0)
    if size <= _MAP_FROM:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _decode_all(data: Buffer, parser: Parser, decoder: Decoder) -> tuple[bytearray, int]:
    """Packed rows of all frames that have a time, and the number of those that have none."""
    rows = bytearray()
    pack, plain_udp, decode, interfaces = _ROW.pack, _PLAIN_UDP, decoder.decode, parser.interfaces
    plain_flows: dict[tuple[bytes, bytes, int, int], int] = {}
    untimed = 0
    for number, time_ns, interface, wire, captured, offset in parser.frames(data, 0, final=True):
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
                    flow = plain_flows[key] = decoder.flow((), src, dst, PROTO_UDP, srcport, dstport)
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


def _table(
    data: Buffer, rows: np.ndarray, parser: Parser, decoder: Decoder, findings: Findings, untimed: int
) -> FrameTable:
    listed = [*findings.listed(), *parser.findings.listed(), *_judge(rows, parser, decoder, untimed)]
    if len(rows) > 1 and not (rows["time_ns"][1:] >= rows["time_ns"][:-1]).all():
        rows = rows[np.argsort(rows["time_ns"], kind="stable")]
    columns = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
    contents: bytes | memoryview
    if decoder.joined:
        in_joined = columns["payload_off"] >= JOINED
        columns["payload_off"][in_joined] += np.uint64((len(data) - JOINED) % (1 << 64))
        contents = bytes(data[:]) + bytes(decoder.joined)
    else:
        contents = data if isinstance(data, bytes) else memoryview(data)
    return FrameTable(
        **columns,
        flows=tuple(decoder.flows),
        data=contents,
        interfaces=tuple(
            InterfaceInfo(one.name, one.linktype, 1e9 / one.ticks_per_s, one.received, one.dropped)
            for one in parser.interfaces
        ),
        findings=tuple(listed),
    )


def _judge(rows: np.ndarray, parser: Parser, decoder: Decoder, untimed: int) -> list[ReaderFinding]:
    """Findings that need all rows, in file order."""
    listed = []
    if untimed:
        listed.append(
            ReaderFinding("no-timestamp", f"{untimed} frames have no time stamp (Simple Packet Blocks), left out")
        )
    cut = rows[rows["cap_len"] < rows["wire_len"]]
    if len(cut):
        listed.append(
            ReaderFinding(
                "snaplen-cut",
                f"{len(cut)} frames are longer than the capture kept of them; the first: frame {cut['number'][0]} "
                f"with {cut['cap_len'][0]} of {cut['wire_len'][0]} bytes",
            )
        )
    if decoder.joiner.incomplete:
        listed.append(
            ReaderFinding("incomplete-datagram", f"{decoder.joiner.incomplete} fragmented datagrams never became whole")
        )
    grouped = Findings()
    for index in np.unique(rows["interface"]) if len(rows) else ():
        interface = parser.interfaces[index]
        if interface.linktype not in SUPPORTED:
            name = LINKTYPE_NAMES.get(interface.linktype, "unknown")
            grouped.add(
                "unsupported-linktype",
                f"link type {interface.linktype} ({name}) is not supported: its frames are listed but not decoded",
                f"{_label(index, interface)}, {np.count_nonzero(rows['interface'] == index)} frames",
            )
    for index, frame, step in _steps_back(rows):
        grouped.add(
            "time-step-back",
            "time steps back within an interface",
            f"by {step} ns at frame {frame} of {_label(index, parser.interfaces[index])}",
            step,
        )
    for index, interface in enumerate(parser.interfaces):
        if interface.dropped > 0:
            of = f" of {interface.received} received" if interface.received >= 0 else ""
            grouped.add(
                "interface-drops",
                "the capture says that packets were dropped",
                f"{interface.dropped}{of} on {_label(index, interface)}",
            )
    return [*listed, *grouped.listed()]


def _label(index: int, interface: Interface) -> str:
    return f"interface {index}" + (f" ({interface.name})" if interface.name else "")


def _steps_back(rows: np.ndarray) -> list[tuple[int, int, int]]:
    """(interface, frame, ns) of the largest step back of each interface that has any."""
    order = np.argsort(rows["interface"], kind="stable")
    interface, time_ns, number = rows["interface"][order], rows["time_ns"][order], rows["number"][order]
    steps = np.diff(time_ns)
    back = np.flatnonzero((steps < 0) & (interface[1:] == interface[:-1]))
    worst: dict[int, tuple[int, int, int]] = {}
    for at in back:
        index = int(interface[at])
        if index not in worst or -steps[at] > worst[index][2]:
            worst[index] = (index, int(number[at + 1]), int(-steps[at]))
    return list(worst.values())
