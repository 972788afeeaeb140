"""A capture file to a frame table, exact to the nanosecond: pcap and pcapng, plain, gzip or zstd."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final

import numpy as np

from rig import _native
from rig.capture import native, plain
from rig.capture.contents import open_contents, with_joined
from rig.capture.decode import JOINED, LINKTYPE_NAMES, SUPPORTED
from rig.capture.frames import Buffer, Findings, Interface, Parser
from rig.capture.pcap import PcapParser, is_pcap
from rig.capture.pcapng import PcapngParser, is_pcapng
from rig.capture.rows import Progress, Rows, large_temporary, sort_by_time
from rig.errors import CaptureError
from rig.timing.table import FrameTable, InterfaceInfo, ReaderFinding

ARRAYS_IN_FILES_FROM: Final = 1 << 30
"""For a capture of more bytes than this, the arrays that it is judged with live in files (`rig._native.arrays`)."""


def read_capture(path: Path, progress: Progress | None = None) -> FrameTable:
    """All frames of a pcap or pcapng file (plain, gzip or zstd), sorted by time.

    progress: called now and then with (bytes done, bytes in all) of the unpacked file. Raises CaptureError when the
    file cannot be opened or is no capture file. Damage further on is a finding of the table, which then holds
    everything that is sound. Frames without a time stamp are in no row, only in a finding.
    """
    findings = Findings()
    with open_contents(path, findings) as (data, file):
        if len(data) > ARRAYS_IN_FILES_FROM:
            from rig._native.arrays import keep_large_arrays_in_files

            keep_large_arrays_in_files(large_temporary())
        parser = parser_for(bytes(data[:16]), path)
        library = _native.load()
        if library is None:
            rows = plain.read_rows(data, parser, progress)
        else:
            rows = native.read_rows(library, data, parser, progress)
        if progress is not None:
            progress(len(data), len(data))
        return _table(data, file, rows, parser, findings)


def parser_for(head: bytes, path: Path) -> Parser:
    """The parser for a file that begins with `head`; CaptureError when it is no capture file."""
    if is_pcapng(head):
        return PcapngParser()
    if is_pcap(head):
        return PcapParser()
    if not head:
        raise CaptureError(f"the capture file {path} is empty", hint="the recorder ended before it wrote anything")
    raise CaptureError(
        f"{path} is no capture file: it begins with {head[:4].hex(' ')}",
        hint="pcap and pcapng files are read, plain, gzip or zstd; `capinfos FILE` names other formats",
    )


def _table(data: Buffer, file: IO[bytes], rows: Rows, parser: Parser, findings: Findings) -> FrameTable:
    columns = rows.columns
    contents: bytes | memoryview = data if isinstance(data, bytes) else memoryview(data)
    if rows.joined:
        contents, begin = with_joined(data, file, rows.joined)
        in_joined = columns["payload_off"] >= JOINED
        columns["payload_off"][in_joined] -= np.uint64(JOINED - begin)
    if not rows.in_order:
        columns = sort_by_time(columns)
    return FrameTable(
        **columns,
        flows=tuple(rows.flows),
        data=contents,
        interfaces=tuple(
            InterfaceInfo(one.name, one.linktype, 1e9 / one.ticks_per_s, one.received, one.dropped, one.system)
            for one in parser.interfaces
        ),
        findings=(*findings.listed(), *parser.findings.listed(), *_noticed(rows, parser)),
    )


def _noticed(rows: Rows, parser: Parser) -> list[ReaderFinding]:
    """Findings about the frames as a whole."""
    listed = []
    if rows.untimed:
        listed.append(
            ReaderFinding("no-timestamp", f"{rows.untimed} frames have no time stamp (Simple Packet Blocks), left out")
        )
    if rows.cut is not None:
        count, number, cap_len, wire_len = rows.cut
        listed.append(
            ReaderFinding(
                "snaplen-cut",
                f"{count} frames are longer than the capture kept of them; the first: frame {number} "
                f"with {cap_len} of {wire_len} bytes",
            )
        )
    if rows.incomplete:
        listed.append(
            ReaderFinding("incomplete-datagram", f"{rows.incomplete} fragmented datagrams never became whole")
        )
    if rows.not_listed:
        listed.append(
            ReaderFinding(
                "too-many-flows",
                f"the capture has more than {len(rows.flows):,} flows, and {rows.not_listed} packets belong to none of "
                "those that came first; judge a file of what the plan looks at, which `tshark -r IN -Y FILTER -w OUT` "
                "writes, FILTER such as `udp.port == 5005`",
            )
        )
    grouped = Findings()
    for index, frames in rows.frames.items():
        interface = parser.interfaces[index]
        if interface.linktype not in SUPPORTED:
            name = LINKTYPE_NAMES.get(interface.linktype, "unknown")
            grouped.add(
                "unsupported-linktype",
                f"link type {interface.linktype} ({name}) is not supported: its frames are listed but not decoded",
                f"{_label(index, interface)}, {frames} frames",
            )
    for index, frame, step in rows.steps_back:
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
