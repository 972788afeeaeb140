"""The benchmark's job done with other tools: `python benchmarks/peers.py PEER FILE` prints what single_pass.c prints.

Every peer hands over (time_ns, port of the board, is it the answer, request id) of each UDP datagram of the token
protocol, as exactly as it can; the figures are then computed alike for all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

Packet: TypeAlias = tuple[int, int, bool, int]

NAMES = {5005: "first", 5006: "second", 5007: "tagged", 5008: "six"}


def figures(packets: Iterator[Packet]) -> list[str]:
    """The lines of single_pass.c."""
    times: dict[tuple[int, bool], list[int]] = {(port, answer): [] for port in NAMES for answer in (False, True)}
    opened: dict[tuple[int, int], int] = {}
    responses: dict[int, list[int]] = {port: [] for port in NAMES}
    for time_ns, port, answer, request in packets:
        times[port, answer].append(time_ns)
        if not answer:
            opened[port, request] = time_ns
        elif (port, request) in opened:
            responses[port].append(time_ns - opened.pop((port, request)))
    lines = []
    for port, name in NAMES.items():
        requests = len(times[port, False])
        lost = requests - len(responses[port])
        lines.append(line(f"response-{name}", sorted(responses[port]), lost))
        lines.append(f"loss-{name} {requests} {lost}")
        for kind, answer in (("requests", False), ("answers", True)):
            stamps = times[port, answer]
            gaps = sorted(after - before for before, after in pairwise(stamps))
            lines.append(line(f"gap-{kind}-{name}", gaps, 0))
    return lines


def line(name: str, ordered: list[int], lost: int) -> str:
    count = len(ordered) + lost
    quantiles = []
    for percent in (50, 90, 99):
        rank = (count * percent + 99) // 100
        quantiles.append(str(ordered[rank - 1]) if rank <= len(ordered) else "lost")
    if not ordered:
        return f"{name} {count} {lost}"
    return f"{name} {count} {lost} {ordered[0]} {' '.join(quantiles)} {ordered[-1]}"


def datagram(time_ns: int, srcport: int, dstport: int, payload: bytes) -> Iterator[Packet]:
    port, answer = (srcport, True) if srcport < dstport else (dstport, False)
    if port in NAMES and payload[:2] == b"T2":
        yield time_ns, port, answer, int.from_bytes(payload[4:8], "little")


def tshark_fields(path: str) -> Iterator[Packet]:
    fields = ["frame.time_epoch", "udp.srcport", "udp.dstport", "udp.payload"]
    argv = ["tshark", "-n", "-r", path, "-Y", "udp", "-T", "fields", "-E", "occurrence=f"]
    with subprocess.Popen(
        [*argv, *(word for field in fields for word in ("-e", field))], stdout=subprocess.PIPE, text=True
    ) as tshark:
        assert tshark.stdout is not None
        for row in tshark.stdout:
            time, srcport, dstport, payload = row.rstrip("\n").split("\t")
            yield from datagram(_ns(time), int(srcport), int(dstport), bytes.fromhex(payload[:16]))


def tshark_ek(path: str) -> Iterator[Packet]:
    argv = ["tshark", "-n", "-r", path, "-Y", "udp", "-T", "ek", "-J", "frame udp"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tshark:
        assert tshark.stdout is not None
        for row in tshark.stdout:
            layers: Any = json.loads(row).get("layers")
            if layers:
                udp = layers["udp"]
                payload = bytes.fromhex(udp["udp_udp_payload"].replace(":", "")[:16])
                time_ns = _ns(layers["frame"]["frame_frame_time_epoch"])
                yield from datagram(time_ns, int(udp["udp_udp_srcport"]), int(udp["udp_udp_dstport"]), payload)


def pyshark(path: str) -> Iterator[Packet]:
    import pyshark as module

    with module.FileCapture(path, display_filter="udp", keep_packets=False) as capture:
        for packet in capture:
            udp = packet.udp
            payload = bytes.fromhex(udp.payload.replace(":", "")[:16])
            yield from datagram(_ns(packet.sniff_timestamp), int(udp.srcport), int(udp.dstport), payload)


def scapy(path: str) -> Iterator[Packet]:
    from scapy.layers.inet import UDP
    from scapy.utils import PcapReader

    with PcapReader(path) as reader:
        for packet in reader:
            if UDP in packet:
                udp = packet[UDP]
                # An EDecimal: exact.
                yield from datagram(int(packet.time * 10**9), udp.sport, udp.dport, bytes(udp.payload)[:8])


def dpkt(path: str) -> Iterator[Packet]:
    import dpkt as module

    with Path(path).open("rb") as file:
        for time, frame in module.pcapng.Reader(file):
            packet = module.ethernet.Ethernet(frame).data
            udp = getattr(packet, "data", None)
            if isinstance(udp, module.udp.UDP):
                yield from datagram(round(float(time) * 1e9), udp.sport, udp.dport, udp.data[:8])


def python_pcapng(path: str) -> Iterator[Packet]:
    from pcapng import FileScanner
    from pcapng.blocks import EnhancedPacket

    with Path(path).open("rb") as file:
        for block in FileScanner(file):
            if isinstance(block, EnhancedPacket):
                time_ns = block.timestamp_high << 32 | block.timestamp_low
                yield from _decoded(time_ns, block.packet_data)


def _decoded(time_ns: int, frame: bytes) -> Iterator[Packet]:
    """By hand, for libraries that only read files."""
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    four = frame[at] >> 4 == 4
    if frame[at + (9 if four else 6)] == 17:
        udp = at + (20 if four else 40)
        ports = int.from_bytes(frame[udp : udp + 2]), int.from_bytes(frame[udp + 2 : udp + 4])
        yield from datagram(time_ns, *ports, frame[udp + 8 : udp + 16])


def _ns(text: str) -> int:
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 10**9 + int(fraction)


PEERS: dict[str, Callable[[str], Iterator[Packet]]] = {
    "tshark-fields": tshark_fields,
    "tshark-ek": tshark_ek,
    "pyshark": pyshark,
    "scapy": scapy,
    "dpkt": dpkt,
    "python-pcapng": python_pcapng,
}

if __name__ == "__main__":
    print("\n".join(figures(PEERS[sys.argv[1]](sys.argv[2]))))
