"""What a recorder knows when it has ended: data for the run record and for the evidence gate."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from rig.capture.points import Direction


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SentinelSeen(_Record):
    """A sentinel frame in the capture. kind: as in token_v2; from_board: the board returned it (else the runner sent
    it). interface: index in `CaptureReport.interfaces`. counters: the board's, as of its send."""

    frame: int
    time_ns: int
    interface: int
    kind: int
    from_board: bool
    src: str
    dst: str
    sequence: int
    boot_id: int
    counters: dict[str, int] | None = None


class CarrierChange(_Record):
    """Carrier came or went. time_ns: wall clock, resolution 1 us."""

    time_ns: int
    interface: str
    carrier: bool


class InterfaceReport(_Record):
    """One capturing interface. None: that place did not report.

    direction: which way the frames here go, `both` where only their addresses tell.
    received, dropped: dumpcap's account on stderr, dropped being the kernel's ring, dumpcap's own queue and what was
    flushed. file_received, file_dropped: the same from the file's Interface Statistics Block. dropped_nic: lost by the
    adapter, by libpcap's account. counters: loss counters of kernel and driver that grew during the capture.
    carrier_changes: growth of the kernel's counter, which also sees what is too short for an event.
    carried: frames that the kernel counted on the interface from shortly before to shortly after the capture; more than
    the capture accounts for means merged frames (GRO), traffic at the edges, or frames left in the ring.
    """

    name: str
    mac: str
    direction: Direction
    received: int | None = None
    dropped: int | None = None
    dropped_nic: int | None = None
    file_received: int | None = None
    file_dropped: int | None = None
    carried: int | None = None
    counters: dict[str, int] = {}
    carrier_at_start: bool
    carrier_at_end: bool | None = None
    carrier_changes: int | None = None


class CaptureReport(_Record):
    """A capture from start to end.

    ended: `stopped` as asked; `died` by itself; `killed` because it did not react to SIGINT in time.
    drained: why it was safe to stop: the answered `end-sentinel` was in the file, or the `quiet-time` after the last
    expected packet had passed; `not` if neither.
    point: kind of the capture point; duplicates: it is known to show frames more than once; stamps: where frames are
    stamped, in words; wire: the stamps are those of frames on the wire, so that they separate board from Jetson.
    where: the machine that recorded, empty for the rig's own.
    faults: sentences about what went wrong, empty for a sound capture.
    """

    file: str
    size: int
    frames: int
    point: str
    where: str
    duplicates: bool
    stamps: str
    wire: bool
    command: list[str]
    version: str
    started_ns: int
    ready_ns: int
    stopped_ns: int
    ended: Literal["stopped", "died", "killed"]
    status: int | None
    drained: Literal["end-sentinel", "quiet-time", "not"]
    interfaces: list[InterfaceReport]
    carrier: list[CarrierChange]
    sentinels: list[SentinelSeen]
    faults: list[str]
    stderr: str

    @property
    def dropped(self) -> int | None:
        """Frames known to be lost before the file, the worst account per interface; None when nobody kept one."""
        accounts = [
            max(known)
            for one in self.interfaces
            if (known := [count for count in (one.dropped, one.file_dropped) if count is not None])
        ]
        if len(accounts) < len(self.interfaces):
            return None
        return sum(accounts) + sum(one.dropped_nic or 0 for one in self.interfaces)

    @property
    def sound(self) -> bool:
        """True when nothing speaks against the capture; adapter counters and carrier are for the gate to weigh."""
        return self.ended == "stopped" and self.drained != "not" and self.dropped == 0 and not self.faults
