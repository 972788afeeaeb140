"""Reads a capture file while it is being written and picks the datagrams that hold a given byte string.

Used to see sentinels pass; everything else is walked over without being decoded, so that it keeps up with the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rig.capture.decode import JOINED, Decoder
from rig.capture.frames import Interface, Parser
from rig.capture.reader import parser_for
from rig.timing.table import PROTO_UDP, FlowKey, ReaderFinding

_CHUNK = 4 << 20


class TailDatagram(NamedTuple):
    """A UDP datagram that the tail picked. time_ns: as captured; payload: as far as the file has it."""

    number: int
    time_ns: int
    interface: int
    flow: FlowKey
    payload: bytes


class CaptureTail:
    """A growing capture file. Frames that do not contain `needle` are only counted."""

    def __init__(self, path: Path, needle: bytes) -> None:
        self._path = path
        self._needle = needle
        self._parser: Parser | None = None
        self._decoder = Decoder()
        self._rest = b""
        self._read = 0
        self.newest_ns: dict[int, int] = {}
        """Latest time stamp of each interface that frames have come from."""

    @property
    def frames(self) -> int:
        """Frames seen so far."""
        return self._parser.number if self._parser else 0

    @property
    def size(self) -> int:
        """Bytes of the file read so far."""
        return self._read

    @property
    def interfaces(self) -> list[Interface]:
        """Interfaces as the file describes them so far; their drops are known once the recorder has ended."""
        return self._parser.interfaces if self._parser else []

    @property
    def application(self) -> str:
        """What wrote the file, by its own account; empty where it does not say."""
        return getattr(self._parser, "application", "")

    @property
    def findings(self) -> tuple[ReaderFinding, ...]:
        return self._parser.findings.listed() if self._parser else ()

    def poll(self, *, final: bool = False) -> list[TailDatagram]:
        """Datagrams that have come since the last call; [] while there is no file or nothing new.

        final: the file grows no more, so that a record that is not whole becomes a finding. Raises CaptureError when
        the file is no capture file.
        """
        picked: list[TailDatagram] = []
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                while chunk := file.read(_CHUNK):
                    self._read += len(chunk)
                    self._rest += chunk
                    picked += self._parse(final=False)
        except FileNotFoundError:
            return []
        if final:
            picked += self._parse(final=True)
        return picked

    def _parse(self, *, final: bool) -> list[TailDatagram]:
        data = self._rest
        if self._parser is None:
            if len(data) < 16 and not final:
                return []
            self._parser = parser_for(data[:16], self._path)
        parser, decoder = self._parser, self._decoder
        picked = []
        for number, time_ns, interface, wire, captured, offset in parser.frames(
            data, self._read - len(data), final=final
        ):
            if time_ns is None:
                continue
            if time_ns > self.newest_ns.get(interface, 0):
                self.newest_ns[interface] = time_ns
            if data.find(self._needle, offset, offset + captured) < 0:
                continue
            decoded = decoder.decode(
                data, offset, captured, wire, parser.interfaces[interface].linktype, time_ns, interface
            )
            if decoded.proto == PROTO_UDP and decoded.flow >= 0 and decoded.payload_off < JOINED:
                payload = data[decoded.payload_off : decoded.payload_off + decoded.payload_cap]
                picked.append(TailDatagram(number, time_ns, interface, decoder.flows[decoded.flow], payload))
        self._rest = b"" if parser.stopped else data[parser.consumed :]
        return picked
