"""A case: everything that one record, or one bare capture, can tell; loaded once, read by every rule and every page.

What a plan imposed on the link (`impairment:`) and what the relay counted is carried for display only: no rule may look
at it, so that a fault of a real bench and one that was imposed are found by the same evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rig.errors import CaptureError, PlanError, RigError, UsageError
from rig.timing.evidence import Evidence
from rig.timing.flows import Dissected, Selection
from rig.timing.table import FrameTable
from rig.timing.tokens import BAD_CHECKSUM
from rig.timing.verdict import PointResult
from rig.triage.control import Arp, Icmp, arp_exchanges, icmp_errors
from rig.triage.exchange_model import Exchanges
from rig.triage.exchanges import exchanges_of, roles
from rig.triage.fragments import Lone, lone_fragments
from rig.triage.jetson_log import JetsonLog, read_jetson_log
from rig.triage.planned import asked_and_answered, keyed_flows, planned_rows, roles_by_plan
from rig.triage.run_info import sound_info
from rig.triage.side_files import read_board_log, read_telemetry

if TYPE_CHECKING:
    from rig.bench.model import BenchFile
    from rig.jetson.report import RunnerReport
    from rig.judging import Capture
    from rig.plan.load import PlanFile, Point
    from rig.record import RunInfo
    from rig.timing.metrics.measurement import Measurement

_Read = TypeVar("_Read")

UNDECLARED_E_NS = 50_000
"""e of a capture of which nobody knows the bench."""
_LARGEST_E_NS = 1_000_000_000_000
"""Nothing could be told apart with an e of more."""
UNTOLD_TIMEOUT_NS = 1_000_000_000
"""Time-out of a request where no plan tells one; a plan's own default."""
_NOISE = 20
"""Shifts below this many e are taken for noise of scheduling, not for a cause."""


@dataclass(frozen=True, eq=False)
class Case:
    """Two cases are never the same one: rules keep what they worked out by identity.

    path: what was named; capture: the capture file in it. addresses: `board` and `jetson`, as far as known.

    result, point: judged by a plan, if there is one. info, report: of a record. evidence: soundness of the measurement.
    unread: sentences about parts that could not be read. jetson_log: the Jetson's events; board_lines: the board's
    console as (ns since the run's start, line); telemetry: its RAM ring; all empty for a bare capture.
    """

    path: Path
    capture: Path
    table: FrameTable
    addresses: Mapping[str, str]
    selection: Selection
    exchanges: Exchanges | None
    e_ns: int
    evidence: Evidence
    result: PointResult | None = None
    point: Point | None = None
    info: RunInfo | None = None
    report: RunnerReport | None = None
    unread: tuple[str, ...] = ()
    jetson_log: JetsonLog = field(default_factory=JetsonLog)
    board_lines: tuple[tuple[int, str], ...] = ()
    telemetry: tuple[dict[str, Any], ...] = ()

    @property
    def noise_ns(self) -> int:
        """The smallest shift that is worth a word."""
        return _NOISE * self.e_ns

    @property
    def origin_ns(self) -> int:
        """Capture time of the first frame."""
        return int(self.table.time_ns[0]) if len(self.table) else 0

    @cached_property
    def arp(self) -> tuple[Arp, ...]:
        return tuple(arp_exchanges(self.table))

    @cached_property
    def icmp(self) -> tuple[Icmp, ...]:
        return tuple(icmp_errors(self.table))

    @cached_property
    def undelivered(self) -> tuple[Icmp, ...]:
        """The ICMP errors about packets of the exchanges while they were measured. In a capture without exchanges:
        about what was to go to the board or to the Jetson."""
        if self.exchanges is None:
            ours = self.addresses.values()
            return tuple(error for error in self.icmp if error.about is None or error.about.dst in ours)
        flows = {self.table.flows[index]._replace(vlans=()) for index in np.flatnonzero(self._exchanged[:-1])}
        return tuple(error for error in self.icmp if error.about in flows and self.measured(error.time_ns))

    @cached_property
    def lone_fragments(self) -> tuple[Lone, ...]:
        """Fragments between board and Jetson that were measured and never became a whole datagram."""
        if self.exchanges is None:
            return ()
        found = lone_fragments(self.table, self.exchanges.board, self.exchanges.jetson)
        return tuple(one for one in found if self.measured(one.time_ns))

    @property
    def exchanged(self) -> NDArray[np.int64]:
        """Rows of the flows that carry the exchanges or that the plan names; all else is others' traffic."""
        return np.flatnonzero(self._exchanged[self.table.flow])

    def measured(self, time_ns: int) -> bool:
        """True between the sentinels; always in a capture without."""
        return self.selection.window.start_ns <= time_ns < self.selection.window.end_ns

    @cached_property
    def _exchanged(self) -> NDArray[np.bool_]:
        """Mask over the flows, and False at its end, where frames without a flow find it."""
        chosen = np.zeros(len(self.table.flows) + 1, np.bool_)
        if self.exchanges is not None:
            for side in (self.exchanges.asks, self.exchanges.answers):
                chosen[self.table.flow[side.row]] = True
            planned = planned_rows(self.selection, self.point.plan) if self.point is not None else None
            if planned is not None:
                chosen[self.table.flow[planned]] = True
        return chosen

    @cached_property
    def run_start_ns(self) -> int | None:
        """The run's start on the capture's clock, from the first frame; None where nobody knows."""
        if self.info is None or not self.info.started_utc:
            return None
        try:
            started = datetime.fromisoformat(self.info.started_utc.replace("Z", "+00:00"))
        except ValueError:
            return None
        if not len(self.table):
            return 0
        return round(started.timestamp() * 1000) * 1_000_000 - self.origin_ns

    @cached_property
    def loaded_lines(self) -> tuple[tuple[int, str], ...]:
        """What the console said from the start sentinel on; nothing where no load is known to have begun."""
        if self.info is None:
            return ()
        begins = [phase.start_ns for phase in self.info.phases if phase.name == "traffic"]
        window = self.selection.window
        # Stamps of a capture on the Jetson are on another clock than the console's.
        if window.start_seen and self.run_start_ns is not None and self.capture_point != "jetson":
            begins.append(window.start_ns - self.origin_ns - self.run_start_ns)
        return tuple(line for line in self.board_lines if begins and line[0] >= max(begins))

    @property
    def capture_point(self) -> str:
        """`inline`, `mirror`, `tap` or `jetson`; empty where nobody knows."""
        return str(self.info.bench.get("capture", {}).get("point") or "") if self.info is not None else ""

    @property
    def emulated(self) -> bool:
        """True when the record comes from an emulated bench, which has no cable and no switch."""
        return self.info is not None and self.info.bench.get("emulation") is not None

    @property
    def board_counters(self) -> Mapping[str, int]:
        """The counters of the board's console at the end of the run; empty where it told none."""
        return self.info.board.get("counters", {}) if self.info is not None else {}

    @property
    def expects_answers(self) -> bool:
        """True when a check, or the protocol, says that what goes to the board asks for an answer."""
        asks = self.point is not None and asked_and_answered(self.point.plan) is not None
        return self.exchanges is not None and (self.exchanges.known or asks)

    @property
    def timeout_ns(self) -> int:
        """How long an answer may take."""
        return _timeout_ns(self.point)

    @cached_property
    def boots(self) -> tuple[int, ...]:
        """Boot ids of the board's datagrams in the capture, sentinels included, in order of appearance."""
        tokens = self.selection.v2.tokens
        mine = np.array([key.src == self.addresses.get("board") for key in self.table.flows] + [False], np.bool_)
        boot = tokens.boot_id[mine[self.table.flow[tokens.row]]].astype(np.int64)
        if not len(boot):
            return ()
        changes = np.flatnonzero(np.diff(boot)) + 1
        return tuple(dict.fromkeys(int(boot[i]) for i in (0, *changes)))

    @cached_property
    def board_gaps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(missing datagrams, row of the frame after the gap) of the board's sequence between the sentinels."""
        return self._gaps(self.addresses.get("board", ""))

    @cached_property
    def jetson_gaps(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same of the Jetson's sequence."""
        return self._gaps(self.addresses.get("jetson", ""))

    @cached_property
    def bad_checksums(self) -> NDArray[np.int64]:
        """Rows that carry a token-v2 magic and a wrong header CRC."""
        decoded = self.selection.v2
        rows: NDArray[np.int64] = decoded.row[decoded.reason == BAD_CHECKSUM]
        return rows

    def _gaps(self, address: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        none = np.empty(0, np.int64)
        exchanges = self.exchanges
        tokens = self.selection.v2.tokens
        if exchanges is None or not len(tokens):
            return none, none
        mine = np.array([key.src == address for key in self.table.flows] + [False], np.bool_)
        at = np.flatnonzero(mine[self.table.flow[tokens.row]])
        missing, rows = [], []
        for boot in np.unique(tokens.boot_id[at]):
            of_boot = at[tokens.boot_id[at] == boot]
            sequence, first = np.unique(tokens.sequence[of_boot].astype(np.int64), return_index=True)
            step = np.diff(sequence)
            for i in np.flatnonzero((step > 1) & (step < 1 << 20)):
                row = int(tokens.row[of_boot[first[i + 1]]])
                if self.table.time_ns[row] > exchanges.window.start_ns and (
                    self.table.time_ns[tokens.row[of_boot[first[i]]]] <= exchanges.window.end_ns
                ):
                    missing.append(int(step[i]) - 1)
                    rows.append(row)
        return np.array(missing, np.int64), np.array(rows, np.int64)

    def numbers(self, rows: NDArray[np.int64] | list[int], most: int = 8) -> tuple[int, ...]:
        """Frame numbers of the first few rows."""
        return tuple(int(n) for n in self.table.number[np.asarray(rows, np.int64)[:most]])


def load_case(
    path: Path, plan_file: PlanFile | None = None, *, bench: BenchFile | None = None, point: str | None = None
) -> Case:
    """A record folder or a capture file as a case.

    bench: for a capture with a plan, the bench file that says whose address is whose. Raises RigError when it is
    neither, or cannot be read at all.
    """
    if path.is_dir():
        return case_of_record(path, plan_file)
    return case_of_capture(path, plan_file, bench=bench, point=point)


def case_of_record(directory: Path, plan_file: PlanFile | None = None) -> Case:
    """A run record. Parts that are missing or damaged are named in `unread`, and the rest is used. Raises PlanError for
    a named plan that does not fit."""
    from rig.jetson.report import report_of
    from rig.judging import Capture, judge_record
    from rig.record import load_run
    from rig.recorded import DAMAGED, bench_addresses, evidence_of, recorded_e_ns
    from rig.stored import UNREADABLE, point_of, stored_result, unjudgeable, why_not_judged
    from rig.timing.table import FrameTable

    info, unread = sound_info(load_run(directory))
    capture = Capture(directory / "capture.pcapng")
    try:
        table = capture.table
    except RigError as error:
        unread.append(why_not_judged(directory, error))
        table = _empty(FrameTable)
    log = _part(directory / "jetson.jsonl", read_jetson_log, unread) or JetsonLog()
    if log.damaged:
        unread.append(f"{log.damaged} lines of jetson.jsonl are no events of the runner")
    try:
        report = report_of(log.events) if log.events else None
    except DAMAGED as error:
        report = None
        unread.append(f"jetson.jsonl lacks what a runner writes: {error!r}")
    lines = _part(directory / "board.log", lambda path: tuple(read_board_log(path)), unread) or ()
    telemetry, damaged = _part(directory / "telemetry.jsonl", read_telemetry, unread) or ([], 0)
    if damaged:
        unread.append(f"{damaged} lines of telemetry.jsonl are no events of the board")
    point: Point | None
    try:
        result, point = judge_record(directory, plan_file, capture)
    except UNREADABLE as error:
        if plan_file is not None and isinstance(error, PlanError):
            raise  # the plan that was named does not fit
        point = point_of(directory, plan_file)
        stored = stored_result(directory) if plan_file is None else None
        if stored is not None:
            why = why_not_judged(directory, error)
            unread = [*(one for one in unread if one != why), f"{why}; the verdicts are those of the time of the run"]
        result = stored or unjudgeable(directory, error, point)
    try:
        evidence = evidence_of(info, report)
        addresses = bench_addresses(info.bench)
        e_ns = recorded_e_ns(info.bench)
        if not 0 <= e_ns < _LARGEST_E_NS:
            raise ValueError(f"an uncertainty of {e_ns} ns")
    except DAMAGED as error:
        unread.append(f"run.json does not hold what a run writes: {error!r}")
        evidence, addresses, e_ns = Evidence(), {}, UNDECLARED_E_NS
    case = _case(directory, capture, table, addresses, e_ns, evidence, result, point, info, report, tuple(unread))
    return replace(case, jetson_log=log, board_lines=lines, telemetry=tuple(telemetry))


def _part(path: Path, read: Callable[[Path], _Read], unread: list[str]) -> _Read | None:
    """What `read` makes of a file of a record; None where there is none, or where it cannot be read."""
    try:
        return read(path) if path.exists() else None
    except OSError as error:
        unread.append(f"{path.name} cannot be read: {error.strerror}")
        return None


def case_of_capture(
    path: Path,
    plan_file: PlanFile | None = None,
    *,
    bench: BenchFile | None = None,
    point: str | None = None,
) -> Case:
    """A capture that is no record: addresses come from the bench file with a plan, else from the packets."""
    from rig.judging import Capture, judge_capture

    capture = Capture(path)
    table = capture.table
    if plan_file is None or bench is None:
        return _case(path, capture, table, {}, UNDECLARED_E_NS, Evidence(), None, None, None, None, ())
    chosen = plan_file.point(point) if point is not None else plan_file.points[0]
    unread: tuple[str, ...] = ()
    if point is None and len(plan_file.points) > 1:
        unread = (f"judged by point `{chosen.name}`, the first of {len(plan_file.points)}; --point names another",)
    result = judge_capture(capture, plan_file, chosen, bench)
    evidence = Evidence()
    addresses: dict[str, str] = {}
    if bench.emulation is not None:
        from rig.emulation import network

        addresses = {"board": network.BOARD_ADDRESS, "jetson": network.JETSON_ADDRESS}
    elif bench.board is not None and bench.jetson is not None:
        addresses = {"board": bench.board.identity.address, "jetson": bench.jetson.bench_address}
    seen = {address for key in table.flows for address in (key.src, key.dst)}
    if addresses and not seen & set(addresses.values()):
        unread += ("no frame has the bench file's addresses; who is who was taken from the packets",)
        addresses = {}
    e_ns = bench.uncertainty.declared
    return _case(path, capture, table, addresses, e_ns, evidence, result, chosen, None, None, unread)


@lru_cache(maxsize=4)
def samples_of(case: Case) -> dict[str, Measurement]:
    """Check → its measurement over the case; those that need more than the capture to be measured are left out."""
    from rig.timing.metrics import measure
    from rig.timing.metrics.measurement import Scene

    if case.point is None or not len(case.table):
        return {}
    plan = case.point.plan
    found = {}
    try:
        packets = {name: case.selection.packets(name, flow) for name, flow in plan.flows.items()}
    except PlanError:
        return {}
    scene = Scene(packets=packets, timeout_ns=plan.inference.timeout, end_ns=int(case.table.time_ns[-1]))
    for name, check in plan.checks.items():
        try:
            found[name] = measure(check, scene)
        except (RigError, ValueError, KeyError):
            continue
    return found


def _case(
    path: Path,
    capture: Capture,
    table: FrameTable,
    addresses: Mapping[str, str],
    e_ns: int,
    evidence: Evidence,
    result: PointResult | None,
    point: Point | None,
    info: RunInfo | None,
    report: RunnerReport | None,
    unread: tuple[str, ...],
) -> Case:
    dissected = _dissected(capture, point) if point is not None and len(table) else None
    selection = Selection(table, addresses, dissected)
    known = dict(addresses)
    if not {"board", "jetson"} <= set(known):
        by_plan = roles_by_plan(selection, point.plan) if point is not None else {}
        known = by_plan or roles(table, selection.v2.tokens)
        selection = Selection(table, known, dissected)
    exchanges = None
    if {"board", "jetson"} <= set(known):
        planned = planned_rows(selection, point.plan) if point is not None else None
        keyed = keyed_flows(selection, point.plan, known["board"]) if point is not None else None
        exchanges = exchanges_of(selection, known["board"], known["jetson"], _timeout_ns(point), planned, keyed)
    return Case(
        path,
        capture.path,
        table,
        known,
        selection,
        exchanges,
        e_ns,
        evidence,
        result,
        point,
        info,
        report,
        unread,
    )


def _timeout_ns(point: Point | None) -> int:
    return UNTOLD_TIMEOUT_NS if point is None else point.plan.inference.timeout


def _dissected(capture: Capture, point: Point) -> Dissected | None:
    """What tshark says for the plan's `filter:` and `field:`. Where it fails, judging has said so already."""
    try:
        return capture.dissected(point)
    except CaptureError:
        return None


def _empty(kind: type[FrameTable]) -> FrameTable:
    none = {
        "number": "u4", "time_ns": "i8", "first_ns": "i8", "interface": "u2", "wire_len": "u4", "cap_len": "u4",
        "proto": "u1", "flow": "i4", "payload_off": "u8", "payload_len": "u4", "payload_cap": "u4",
    }  # fmt: skip
    return kind(**{name: np.empty(0, code) for name, code in none.items()}, flows=(), data=b"")  # type: ignore[arg-type]


def require_record_or_capture(path: Path) -> None:
    """UsageError for a path that is neither, with what to name instead."""
    if path.is_dir() and not (path / "run.json").is_file():
        runs = sorted(run.parent.name for run in path.glob("*/run.json"))
        raise UsageError(
            f"{path} is no run record",
            seen=f"it is a set of {len(runs)} runs: {', '.join(runs[:6])}" if runs else None,
            hint=f"rig triage {path / runs[0]}" if runs else "name captures/<set>/<run>, or a pcap or pcapng file",
        )
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint="name captures/<set>/<run>, or a pcap or pcapng file")
