"""Records the bench's Ethernet with dumpcap: ready before the first packet, tail drained, every loss accounted for.

host: the rig's, at capture point `jetson` a JetsonHost; whatever the host, the file lies here when it is stopped.

with Recorder(host, capture_point(bench.capture), path) as recorder:
    recorder.start(deadline)          # dumpcap has its socket open
    ...                               # traffic; recorder.check() notices a dead dumpcap
    recorder.drain(deadline)          # the end sentinel is in the file, or the quiet time is over
    report = recorder.stop(deadline)
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from rig.bench.host import Child, Host
from rig.capture import dumpcap
from rig.capture.jetson_host import JetsonChild, JetsonHost
from rig.capture.links import (
    MONITOR,
    Link,
    carrier_events,
    counter_growth,
    find_link,
    read_link,
    read_links,
    require_up,
)
from rig.capture.points import Point
from rig.capture.report import CaptureReport, CarrierChange, InterfaceReport, SentinelSeen
from rig.capture.tail import CaptureTail
from rig.deadline import Deadline
from rig.errors import CaptureError, InternalError, JetsonError, RigError
from rig.protocol import TokenError, token_v2

QUIET_S: Final = 0.5
"""Twice the time that a frame may lie in the kernel's ring (`dumpcap.BLOCK_TIMEOUT_S`)."""
LEAST_FREE: Final = 1 << 16
"""Bytes; a block that dumpcap writes can be as long."""
_POLL_S: Final = 0.01
_SENTINEL_MARK: Final = token_v2.MAGIC + bytes([token_v2.SENTINEL])


def check_capture(host: Host, point: Point, deadline: Deadline) -> list[Link]:
    """The point's interfaces, proven fit to capture on now; CaptureError with the exact fix when they are not."""
    links = read_links(host, deadline)
    chosen = [find_link(links, wanted) for wanted in point.interfaces]
    for link in chosen:
        require_up(link)
        try:
            probe = host.run(dumpcap.probe_command(link.name), deadline)
        except InternalError as error:
            if deadline.expired():
                raise
            raise dumpcap.not_executable(error.what, where=place_of(host)) from error
        if probe.returncode != 0:
            stderr = probe.stderr.decode("utf-8", "replace")
            raise dumpcap.refusal(stderr, link.name, status=probe.returncode, where=place_of(host))
    return chosen


def place_of(host: Host) -> str:
    """`user@host:port` of the Jetson where the capture runs; empty for the rig itself."""
    return host.where if isinstance(host, JetsonHost) else ""


class Recorder:
    """One capture into one new file. dumpcap's and ip's own output lie beside it while it runs."""

    def __init__(self, host: Host, point: Point, path: Path) -> None:
        self._host = host
        self._point = point
        self._path = path
        self._stderr = path.with_name(path.name + ".stderr")
        self._changes = path.with_name(path.name + ".links")
        self._child: Child | None = None
        self._monitor: Child | None = None
        self._links: list[Link] = []
        self._tail = CaptureTail(path, _SENTINEL_MARK)
        self._drained: Literal["end-sentinel", "quiet-time", "not"] = "not"
        self._started_ns = self._ready_ns = 0
        self.clock: dict[str, int] | None = None
        """The clock that stamped, where that is not the rig's: `rig.capture.clock.ClockWatch.summary`, after `stop`."""
        self.sentinels: list[SentinelSeen] = []
        """Sentinels seen in the file so far, in its order."""

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in (self._child, self._monitor):
            with contextlib.suppress(JetsonError):
                if child is not None and child.poll() is None:
                    child.send_signal(signal.SIGKILL)
                    child.wait(Deadline.after(1.0))
        if isinstance(self._host, JetsonHost):
            self._host.close()
        for left in (self._stderr, self._changes):
            left.unlink(missing_ok=True)

    def start(self, deadline: Deadline) -> None:
        """Start dumpcap and return once its socket is open; CaptureError with the exact fix when it cannot be."""
        if self._path.exists():
            raise InternalError(f"the capture file {self._path} exists already; a capture is never written over")
        links = read_links(self._host, deadline)
        chosen = [find_link(links, wanted) for wanted in self._point.interfaces]
        self._links = []
        for link in chosen:
            require_up(link)
            self._links.append(read_link(self._host, link.name, deadline) or link)
        names = [link.name for link in self._links]
        self._monitor = self._host.spawn(MONITOR, stdout=self._changes, stderr=self._changes)
        self._started_ns = time.time_ns()
        try:
            self._child = self._host.spawn(dumpcap.command(names), stdout=self._path, stderr=self._stderr)
        except InternalError as error:
            raise dumpcap.not_executable(error.what, where=place_of(self._host)) from error
        while not dumpcap.read_messages(self._messages()).ready:
            status = self._child.poll()
            if status is not None or deadline.expired():
                where = place_of(self._host)
                raise dumpcap.refusal(self._messages(), ", ".join(names), status=status, where=where)
            time.sleep(_POLL_S / 2)
        self._ready_ns = time.time_ns()

    def check(self) -> None:
        """CaptureError when dumpcap has died or its disk is full; to be called now and then while waiting.

        On a full disk dumpcap stays, and tells of it only when it is stopped.
        """
        if self._child is None:
            raise InternalError("the recorder was asked for its state before it was started")
        status = self._child.poll()
        if status is not None:
            complaints = dumpcap.read_messages(self._messages()).complaints
            raise CaptureError(
                f"dumpcap ended by itself in mid-run with {_ending(status)} after {self._tail.frames} frames or more",
                seen=complaints[-1] if complaints else None,
                hint="see whether the disk is full or the interface was removed; the frames so far are in "
                f"{self._path.name}",
            )
        if shutil.disk_usage(self._path.parent).free < LEAST_FREE:
            raise CaptureError(
                f"the disk is full: dumpcap cannot write {self._path}",
                seen=f"{self._tail.frames} frames or more before that",
                hint="make room, or choose another folder with --record-dir",
            )

    def drain(self, deadline: Deadline, *, end_answered: bool = False) -> None:
        """Wait until the tail is in the file. Call it when the last expected packet has been sent or received.

        end_answered: the Jetson has the board's answer to the end sentinel, so the file will show it too, however long
        a busy machine keeps dumpcap from its turn: no quiet time is taken for the end before the deadline.

        Over once the board's answer to the end sentinel is in the file and every interface has shown its frame of that
        exchange, which comes there after everything else. Without it: at least QUIET_S after the call, and only when
        nothing more came for as long, or when frames that are later than the call have come. A dumpcap that lags behind
        is waited for, since what it leaves in the kernel's ring is lost and counted by nobody. CaptureError if dumpcap
        died.
        """
        begun = grown = time.monotonic()
        caught_up_ns = time.time_ns() + int(QUIET_S / 2 * 1e9)
        size = self._tail.size
        while True:
            self._poll(deadline)
            now = time.monotonic()
            if self._tail.size != size:
                size, grown = self._tail.size, now
            ends = [seen for seen in self.sentinels if seen.kind == token_v2.SENTINEL_END]
            if any(seen.from_board for seen in ends) and len({seen.interface for seen in ends}) == len(self._links):
                self._drained = "end-sentinel"
                return
            newest = [self._tail.newest_ns.get(index, 0) for index in range(len(self._links))]
            quiet = now - begun >= QUIET_S and (now - grown >= QUIET_S or min(newest) >= caught_up_ns)
            if quiet and (not end_answered or deadline.expired()):
                self._drained = "quiet-time"
                return
            if deadline.expired():
                return
            self.check()
            time.sleep(_POLL_S)

    def stop(self, deadline: Deadline) -> CaptureReport:
        """End dumpcap and account for everything. Never raises for what the capture lacks: the report says it."""
        if self._child is None:
            raise InternalError("the recorder was asked to stop before it was started")
        faults: list[str] = []
        ended, status = self._end(self._child, deadline, faults)
        stopped_ns = time.time_ns()
        with contextlib.suppress(JetsonError):  # a lost connection has been told of by then
            if self._monitor is not None:
                self._monitor.send_signal(signal.SIGTERM)
                self._monitor.wait(deadline)
        try:
            self._poll(deadline, final=True)
        except RigError as error:
            faults.append(error.what)
        if isinstance(self._child, JetsonChild):
            self.clock = self._child.clock
            faults += [*self._child.faults, *filter(None, [self._child.mismatch()])]
        stderr = self._messages()
        messages = dumpcap.read_messages(stderr)
        faults += [f"dumpcap: {line}" for line in messages.complaints]
        faults += [f"{finding.kind}: {finding.detail}" for finding in self._tail.findings]
        interfaces = [self._account(link, index, messages, faults, deadline) for index, link in enumerate(self._links)]
        changes = self._changes.read_text(errors="replace") if self._changes.exists() else ""
        for left in (self._stderr, self._changes):
            left.unlink(missing_ok=True)
        return CaptureReport(
            file=self._path.name,
            size=self._path.stat().st_size,
            frames=self._tail.frames,
            point=self._point.kind,
            where=place_of(self._host),
            duplicates=self._point.duplicates,
            stamps=self._point.stamps,
            wire=self._point.wire,
            command=dumpcap.command([link.name for link in self._links]),
            version=self._tail.application,
            started_ns=self._started_ns,
            ready_ns=self._ready_ns,
            stopped_ns=stopped_ns,
            ended=ended,
            status=status,
            drained=self._drained,
            interfaces=interfaces,
            carrier=[CarrierChange(**event._asdict()) for event in carrier_events(changes, self._links)],
            sentinels=self.sentinels,
            faults=faults,
            stderr=stderr,
        )

    def _end(
        self, child: Child, deadline: Deadline, faults: list[str]
    ) -> tuple[Literal["stopped", "died", "killed"], int | None]:
        try:
            status = child.poll()
        except JetsonError as error:
            faults.append(error.what)
            return "died", None
        if status is not None:
            faults.append(f"dumpcap had ended by itself with {_ending(status)} before it was asked to")
            return "died", status
        child.send_signal(signal.SIGINT)
        try:
            status = child.wait(deadline)
            if status is None:
                child.send_signal(signal.SIGKILL)
                status = child.wait(Deadline.after(1.0))
        except JetsonError as error:
            faults.append(error.what)
            return "died", None
        if status is None or status == -signal.SIGKILL:
            faults.append("dumpcap did not end on SIGINT in time and was killed; the end of the capture is lost")
            return "killed", status
        if status != 0:
            faults.append(f"dumpcap ended with {_ending(status)}")
        return "stopped", status

    def _account(
        self, before: Link, index: int, messages: dumpcap.Messages, faults: list[str], deadline: Deadline
    ) -> InterfaceReport:
        counts = next((one for one in messages.counts if one.interface == before.name), None)
        if counts is None:
            faults.append(f"dumpcap gave no count of lost packets for {before.name}")
        described = self._tail.interfaces[index] if index < len(self._tail.interfaces) else None
        after = None
        with contextlib.suppress(CaptureError, InternalError, JetsonError):
            after = read_link(self._host, before.name, deadline)
        if after is None:
            faults.append(f"the interface {before.name} is gone")
        elif not after.up:
            faults.append(f"the interface {before.name} was taken down")
        return InterfaceReport(
            name=before.name,
            mac=before.mac,
            direction=self._point.directions[index],
            received=counts.received if counts else None,
            dropped=counts.dropped if counts else None,
            dropped_nic=counts.dropped_nic if counts else None,
            file_received=_known(described.received) if described else None,
            file_dropped=_known(described.dropped) if described else None,
            carried=after.frames - before.frames if after else None,
            counters=counter_growth(before, after) if after else {},
            carrier_at_start=before.carrier,
            carrier_at_end=after.carrier if after else None,
            carrier_changes=after.carrier_changes - before.carrier_changes if after else None,
        )

    def _poll(self, deadline: Deadline, *, final: bool = False) -> None:
        if isinstance(self._host, JetsonHost):
            self._host.fetch(deadline)
        for datagram in self._tail.poll(final=final):
            try:
                sentinel = token_v2.decode(datagram.payload)
            except TokenError:
                continue
            kind = sentinel.header.sentinel_kind
            if kind is None:
                continue
            self.sentinels.append(
                SentinelSeen(
                    frame=datagram.number,
                    time_ns=datagram.time_ns,
                    interface=datagram.interface,
                    kind=kind,
                    from_board=sentinel.from_board,
                    src=datagram.flow.src,
                    dst=datagram.flow.dst,
                    sequence=sentinel.header.sequence,
                    boot_id=sentinel.header.boot_id,
                    counters=token_v2.decode_counters(sentinel.payload) if sentinel.from_board else None,
                )
            )

    def _messages(self) -> str:
        return self._stderr.read_text(errors="replace") if self._stderr.exists() else ""


def _ending(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


def _known(count: int) -> int | None:
    return count if count >= 0 else None
