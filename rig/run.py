"""One run of one point of a plan, phase by phase. Read this page first: the rooms below it hold the details.

    preflight → flash → capture → boot → engine → network → traffic → drain → collect

The engine loads from the preflight on; its phase waits for what is left of that. Every phase has its own budget, its
own line on the screen and its own entry in run.json. Whatever happens, the capture is stopped, the runner on the Jetson
ends, the relay is set back, and what was written so far can be read.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.collecting import BRING_HOME_S, bring_home
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError, PlanError, RigError
from rig.interrupts import Ends, held_back
from rig.phases import PhaseInProgress, Phases
from rig.project import FIRMWARE, ROOT
from rig.record import RunInfo, RunRecord, RunSet, controller_identity
from rig.session import Rig

if TYPE_CHECKING:
    from rig.board.board import Board
    from rig.board.flash.flasher import Progress as FlashProgress
    from rig.board.image import Image
    from rig.capture.recorder import Recorder
    from rig.jetson.runs import RemoteRun
    from rig.plan.load import PlanFile, Point
    from rig.plan.model import Plan
    from rig.progress import Progress

PREFLIGHT_S = 20.0
ENGINE_S = 60.0
FLASH_S = 300.0
"""For the bytes; the lab's programs have their deadlines besides."""
CAPTURE_S = 10.0
IDENTITY_S = 5.0
TEARDOWN_S = 20.0
"""For all that is brought home after a failure or an interrupt; a second interrupt ends it at once."""


def run_point(
    rig: Rig,
    plan_file: PlanFile,
    point: Point,
    runs: RunSet,
    progress: Progress,
    firmware: Path | None = None,
    attempt: int = 1,
) -> RunRecord:
    """Execute `point` on `rig` and leave its record in `runs`.

    firmware: an image to use in place of the plan's variant. A RigError ends the run and stands in the record, which
    is returned; KeyboardInterrupt, and whatever the rig did not expect, is raised again once everything is back in
    order.
    """
    record = runs.new_run(_run_info(rig, plan_file, point, attempt), plan_file.text.encode(), rig.text)
    progress.run_begins(title(plan_file, point))
    phases = Phases(record, progress)
    outcome = "interrupted"
    try:
        _execute(rig, point.plan, record, phases, firmware)
        outcome = "completed"
    except RigError as symptom:
        outcome = "error"
        record.info.error = _told(_cause(rig, symptom), phases)
    except Exception as defect:
        outcome = "error"
        what = f"a defect of the rig: {type(defect).__name__}: {defect}"
        record.info.error = _told(InternalError(what, hint="report it, with its traceback and this record"), phases)
        raise
    finally:
        with held_back():
            record.seal(outcome)
    return record


def _told(error: RigError, phases: Phases) -> dict[str, Any]:
    """An error as run.json has it."""
    return {
        "side": error.side,
        "phase": phases.failed or "teardown",
        "what": error.what,
        "seen": error.seen,
        "hint": error.hint,
    }


def _cause(rig: Rig, symptom: RigError) -> RigError:
    """The symptom itself, unless the bench under it has come apart."""
    try:
        rig.require_whole()
    except RigError as cause:
        if cause.what != symptom.what:
            cause.seen = symptom.what
            return cause
    return symptom


def title(plan_file: PlanFile, point: Point) -> str:
    """`plan` or `plan[point]`, as pytest ids and reports show it."""
    return plan_file.plan.plan + (f"[{point.name}]" if point.name else "")


def find_image(variant: str, firmware: Path | None = None) -> Path:
    """The image file to flash: the one given, else this project's build of `variant`."""
    if firmware is not None:
        return firmware
    path = FIRMWARE / variant / "app.bin"
    if not path.exists():
        built = sorted(image.parent.name for image in FIRMWARE.glob("*/app.bin"))
        raise PlanError(
            f"firmware variant {variant!r} is not built",
            seen=f"built variants: {', '.join(built) or 'none'}",
            hint="run `make -C firmware`, or name an image with --firmware",
        )
    return path


def _execute(rig: Rig, plan: Plan, record: RunRecord, phases: Phases, firmware: Path | None) -> None:
    from rig.bench.checks import Site
    from rig.bench.doctor import preflight
    from rig.bench.uncertainty import uncertainty_now
    from rig.board.escalation import flash_programs_bound_s
    from rig.board.image import load_image
    from rig.board.report import BootFailure
    from rig.capture.clock import ClockWatch
    from rig.capture.points import capture_point
    from rig.capture.recorder import Recorder, check_capture
    from rig.jetson.runs import host_state, start_run
    from rig.jetson.spec import make_spec
    from rig.tools import tool_versions

    bench, info = rig.bench, record.info
    with Ends() as ends:
        with phases.phase("preflight", PREFLIGHT_S) as phase:
            image = load_image(find_image(plan.firmware.variant, firmware), bench.board.flash.image_address)
            info.firmware = _describe_image(image, plan, firmware)
            info.tools = tool_versions(bench.emulation is not None)
            point = capture_point(bench.capture)
            capture_host = rig.capture_host(phase.deadline)
            links = check_capture(capture_host, point, phase.deadline)
            jetson = rig.jetson(phase.deadline)
            info.jetson["host"] = host_state(jetson, phase.deadline)
            site = Site.of(rig, jetson, ROOT, record.directory.parents[1], phase.deadline)
            phase.warnings = preflight(site)
            # Takes the Jetson's lease, before anything on the bench is changed, and sweeps what dead runs left. The
            # engine loads while the board is flashed: the phase `engine` waits for what is left of it.
            spec = make_spec(plan.inference, bench, run_id=info.run_id.replace("/", "."), owner=owner())
            runner = ends.enter_context(start_run(jetson, spec, phase.deadline))
            info.nic = rig.nics([link.name for link in links], phase.deadline)
            board = ends.enter_context(rig.board(record.board_log, phases.start_ns))
            phase.note = (
                f"board on {bench.board.serial.port}, Jetson {bench.jetson.user}@{bench.jetson.host}, "
                f"capture {point.kind} on {', '.join(link.name for link in links)}"
            )

        programs_s = flash_programs_bound_s(bench.board, len(image.segments) + 1)
        with phases.phase("flash", FLASH_S + programs_s) as phase:
            _flash(board, image, plan, info, phase)

        recorder = ends.enter_context(Recorder(capture_host, point, record.capture))
        clock = ends.enter_context(ClockWatch())
        with phases.phase("capture", CAPTURE_S) as phase:
            e = uncertainty_now(bench, capture_host, point, [link.name for link in links], phase.deadline)
            info.bench["uncertainty"] = e.model_dump(mode="json")
            recorder.start(phase.deadline)
            phase.note = f"dumpcap is recording, {e.note}"

        sound = False
        try:
            _measure(rig, board, runner, recorder, image, plan, info, phases)
            sound = True
        except BootFailure as failure:
            # The product's fault, not the rig's: the check `alive` judges it from the observation.
            info.board["observations"] = [asdict(failure.observation)]
            sound = True
        finally:
            # After a failure the first one is reported, whatever else goes wrong while the rest is brought home.
            budget = Deadline.after(BRING_HOME_S if sound else TEARDOWN_S)
            with contextlib.suppress(*() if sound else (RigError,)):
                bring_home(rig, board, recorder, clock, runner, record, phases, budget)


def _measure(
    rig: Rig,
    board: Board,
    runner: RemoteRun,
    recorder: Recorder,
    image: Image,
    plan: Plan,
    info: RunInfo,
    phases: Phases,
) -> None:
    from rig.board.escalation import boot_bound_s
    from rig.jetson.spec import traffic_bound_s

    bench = rig.bench
    with phases.phase("boot", boot_bound_s(bench.board) + IDENTITY_S) as phase:
        _boot(board, image, plan, info, phase)

    with phases.phase("engine", ENGINE_S) as phase:
        ready = runner.wait_ready(phase.deadline)
        info.jetson["engine"] = dict(ready.engine)
        phase.note = str(ready.engine.get("provider") or "nothing to infer in this mode")

    with phases.phase("network", bench.network_ready.budget / 1e9 + IDENTITY_S) as phase:
        probe = runner.probe(bench.network_ready.probes, Deadline.after(bench.network_ready.budget / 1e9))
        info.jetson["probe"] = asdict(probe)
        phase.note = f"{probe.answered} of {probe.sent} probes answered"
        if probe.answered < bench.network_ready.probes:
            _require_carrier(rig, phase.note, phase.deadline)

    with phases.phase("traffic", traffic_bound_s(plan.inference)) as phase:

        def watch(counts: Mapping[str, int]) -> None:
            recorder.check()
            phase.update(_traffic_note(plan, counts))

        with rig.impaired(list(plan.impairment)):
            runner.go(phase.deadline)
            done = runner.wait_done(phase.deadline, watch)
        phase.note = _traffic_note(plan, done["counts"])
        gave_up = runner.phases.get("gave-up")
        if gave_up:
            phase.note += f", then given up: {gave_up['silent']} in a row without an answer"
        recorder.check()


def _flash(board: Board, image: Image, plan: Plan, info: RunInfo, phase: PhaseInProgress) -> None:
    def show(step: FlashProgress) -> None:
        phase.update(flash_progress(step))

    report = board.flash(image, plan.firmware.flash, phase.deadline, show)
    # `never` leaves the board alone; the banner still has to show the right identity.
    identity = plan.firmware.flash != "never" and board.ensure_identity(phase.deadline, show)
    info.firmware["flash"] = asdict(report) | {"identity_written": identity}
    if report.skipped:
        phase.note = f"{image.path.parent.name}/{image.path.name} is on the board already"
    else:
        phase.note = f"{report.written / 1024:.1f} KiB written"
    phase.note += (", verified" if report.verified else ", not verified") + (", identity written" if identity else "")
    phase.note += board.escalation()


def flash_progress(step: FlashProgress) -> str:
    """`write 12.0 of 22.2 KiB, 41 KiB/s, 0.2 s left`."""
    if step.phase == "erase":
        return f"erase {step.done} of {step.total} sectors"
    text = f"{step.phase} {step.done / 1024:.1f} of {step.total / 1024:.1f} KiB, {step.rate / 1024:.0f} KiB/s"
    return text + (f", {step.left_s:.1f} s left" if step.left_s else "")


def _boot(board: Board, image: Image, plan: Plan, info: RunInfo, phase: PhaseInProgress) -> None:
    from rig.board.report import Push

    boot = board.reset_and_boot(phase.deadline, phase.update)
    info.board["boot"] = dict(boot.fields)
    info.firmware["proven_by"] = board.prove_identity(image)
    if board.is_ours:
        board.wait_ready(phase.deadline)
        load = plan.inference.load
        push = None
        if plan.inference.mode == "push" and load.open is not None:
            push = Push(load.open.every, plan.inference.requests, plan.inference.answer_tokens)
        board.configure(plan.npu, phase.deadline, push)
    fields = boot.fields
    phase.note = (
        f"{fields.get('variant')} build {fields.get('build', '')[:12]}, boot {fields.get('boot_id')} "
        f"after {fields.get('reset')} reset, {fields.get('ip')}"
        if board.is_ours
        else f"{boot.line.text[:100] or 'no banner to wait for'}, {info.firmware['proven_by']}"
    )
    phase.note += board.escalation()


def _traffic_note(plan: Plan, counts: Mapping[str, int]) -> str:
    if plan.inference.mode == "push":
        return f"{counts.get('answers_unique', 0)} datagrams pushed and received"
    note = f"{counts.get('requests_sent', 0)} requests, {counts.get('answered', 0)} answered"
    return note + "".join(f", {counts[name]} {name}" for name in ("timeouts", "duplicates") if counts.get(name))


def _require_carrier(rig: Rig, answered: str, deadline: Deadline) -> None:
    """Unanswered probes are the board's doing, to be judged, only where a cable could have carried them.

    Other capture points than `inline` see another cable than the board's.
    """
    from rig.capture.links import find_link, read_links

    interface = rig.bench.capture.interface
    if rig.bench.capture.point != "inline" or interface is None:
        return
    link = find_link(read_links(rig.capture_host(deadline), deadline), interface)
    if not link.carrier:
        raise BenchError(
            f"no carrier on {link.name}: nothing joins the bench and the board",
            seen=answered,
            hint="plug the cable in, and see whether the board's Ethernet PHY has come up (its console says `link up`)",
        )


def _run_info(rig: Rig, plan_file: PlanFile, point: Point, attempt: int) -> RunInfo:
    path = plan_file.path
    with contextlib.suppress(ValueError):
        path = path.resolve().relative_to(ROOT)
    return RunInfo(
        run_id="",
        set_id="",
        plan_file=str(path),
        plan_sha256=plan_file.sha256,
        plan_name=plan_file.plan.plan,
        point=point.name,
        attempt=attempt,
        expanded_sha256=point.expanded_hash,
        bench=rig.bench.model_dump(mode="json"),
        controller=dict(controller_identity(ROOT)),
        impairment=[rule.model_dump(mode="json", by_alias=True) for rule in point.plan.impairment],
    )


def _describe_image(image: Image, plan: Plan, firmware: Path | None) -> dict[str, Any]:
    return {
        "variant": None if firmware is not None else plan.firmware.variant,
        "file": image.path.name,
        "sha256": image.sha256,
        "build_id": image.build_id,
        "bytes": image.size,
    }


def owner() -> str:
    """Who a lease is told to belong to."""
    return f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"
