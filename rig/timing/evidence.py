"""What is known about a measurement besides its packets, and what was found wrong with it, as data.

Bad evidence voids a PASS. It voids a FAIL only where what is missing could have caused it; a finding therefore says
how many packets it can account for and by how much it may have shifted a duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rig.timing.limits import Doubt


@dataclass(frozen=True)
class Ledger:
    """What the far ends counted between the sentinels; None where nobody counted.

    requests_sent: datagrams that the Jetson's runner handed to its socket. requests_received: the board's counter.
    answers_sent: answer datagrams (pushes in push mode) that the board handed to its stack. answers_received: distinct
    answer datagrams that the runner got.
    """

    requests_sent: int | None = None
    requests_received: int | None = None
    answers_sent: int | None = None
    answers_received: int | None = None


@dataclass(frozen=True)
class Seen:
    """What the capture holds of the ledger's datagrams, each counted over the span of the far end's counter; copies are
    among them where no far end counted.

    requests: the Jetson's of the measured window, with such copies as the board may have received; of_others: those of
    other clients, which the board counts as well. answers: distinct ones to the runner, from the start of the window to
    the end of the file, because it receives on after its end sentinel. repeated_answers: answers to one request id of
    one client beyond its requests and the first, which requests copied behind the capture point cause. board_boots:
    boot ids of the board in its datagrams. arp_unanswered: who-has frames for the board's address that no answer
    followed.
    """

    requests: int = 0
    of_others: int = 0
    answers: int = 0
    repeated_answers: int = 0
    board_boots: tuple[int, ...] = ()
    arp_unanswered: int = 0


@dataclass(frozen=True)
class Alive:
    """How the board behaved from the reset after flashing to the end of the run.

    image_verified: the image on the board is proven to be the plan's (read-back, or banner with the right build id).
    no_boot: what was seen instead of its banner within the budget; empty when it came. faults: its `FAULT` lines.
    resets: what its console said about resets that nobody asked for, or that it has fallen silent, one sentence each.
    """

    image_verified: bool
    no_boot: str = ""
    faults: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Everything that was observed about the measurement itself. The defaults claim nothing and void nothing.

    sentinels: the runner says it sent them. drops: frames lost by the capture, by source (`isb`, `dumpcap`). nic:
    increase of the capturing NIC's loss counters over the run. clock_step_ns: largest change of wall against monotonic
    time during the run. carrier_changes: on the bench interfaces between the sentinels. late_sends, sends: open load,
    sends behind schedule and sends in all. degraded: sentences about a Jetson that throttled or fell back to the CPU.
    recording: sentences about a recorder that died, was stopped too early or kept no count. frames_twice: the capture
    point is known to show frames twice. timing_notes: sentences for every check that measures times: where e comes
    from, what the stamps are. alive: None where no console was observed.
    """

    sentinels: bool = False
    drops: Mapping[str, int] = field(default_factory=dict)
    nic: Mapping[str, int] = field(default_factory=dict)
    clock_step_ns: int = 0
    carrier_changes: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    late_sends: int = 0
    sends: int = 0
    degraded: tuple[str, ...] = ()
    recording: tuple[str, ...] = ()
    frames_twice: bool = False
    timing_notes: tuple[str, ...] = ()
    alive: Alive | None = None


@dataclass(frozen=True)
class Finding:
    """Something that was noticed about the evidence.

    name: stable key. side: `capture`, `jetson`, `board`, `rig` or `plan`. voids: checks whose PASS it voids. explains:
    checks whose FAIL it may have caused, with `doubt` as the most it can account for.
    """

    name: str
    side: str
    sentence: str
    voids: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    doubt: Doubt = field(default_factory=Doubt)


@dataclass(frozen=True)
class Subject:
    """A check as the gate sees it. metric: its key. sides: who sends the packets that it times. counted: it compares
    with a counter of the sender. cut: token headers of its flows that the snaplen cut. on_wire: the capture takes part
    in what it measures. takes_copies: those of its flows in which it cannot tell a copy from a packet. counts_packets:
    those whose packets it counts, or times one by one. meets: those and the flows of their responses. systems:
    operating systems of the hosts that stamped its packets, as far as the file tells. both: (flow of its requests, flow
    of their answers, how many packets are in both)."""

    name: str
    metric: str
    sides: tuple[str, ...] = ()
    counted: bool = False
    cut: int = 0
    on_wire: bool = True
    takes_copies: tuple[str, ...] = ()
    counts_packets: tuple[str, ...] = ()
    meets: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    both: tuple[str, str, int] | None = None


def doubt_about(check: str, findings: Iterable[Finding]) -> Doubt:
    """The most that all findings together can account for in one check."""
    missing: int | None = 0
    shift: int | None = 0
    for finding in findings:
        if check in finding.explains:
            missing = None if missing is None or finding.doubt.missing is None else missing + finding.doubt.missing
            shift = None if shift is None or finding.doubt.shift_ns is None else shift + finding.doubt.shift_ns
    return Doubt(missing, shift)
