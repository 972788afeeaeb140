"""`rig nightly`: from the command line to a night, its page, its messages and its exit code."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rig.bench.lease import state_folder
from rig.errors import InternalError, UsageError
from rig.nightly.journal import COMPARISONS, Job, Journal, Night, Order, Unfinished, read_journal
from rig.nightly.journal import NAME as JOURNAL
from rig.nightly.night import BenchPlace, Running, all_jobs, verdict_of
from rig.nightly.quarantine import NAME as QUARANTINE
from rig.nightly.quarantine import Entry, load_quarantine

if TYPE_CHECKING:
    from rig.history.series import Standing
    from rig.nightly.morning import Morning
    from rig.plan.load import PlanFile

MORNING: Final = "morning"
"""Folder below the records with the last pages, at addresses that stay: for bookmarks and CI artifacts."""
LOOK_BACK: Final = timedelta(hours=24)


def run(arguments: argparse.Namespace, records: Path, plan_paths: Callable[[Sequence[Path]], Iterable[Path]]) -> int:
    """Returns the exit code, as `rig run` has them. plan_paths: files and folders to plan files."""
    if arguments.report:
        return _report(records)
    with Unfinished(state_folder("nightly")) as unfinished:
        if arguments.resume:
            directory = unfinished.directory()
            if directory is None:
                print("no night was cut off: nothing to resume")
                return 0
            night = read_journal(directory)
            if night.order is None:
                unfinished.clear()
                raise InternalError(f"{directory} says nothing about what its night was to do")
        else:
            from rig.project import DEFAULT_BENCH, ROOT

            plans = [*plan_paths(arguments.plans or [ROOT / "testplans"])]
            named = arguments.bench or [os.environ.get("RIG_BENCH") or str(DEFAULT_BENCH)]
            night = Night(
                Order(
                    plans=tuple(str(path.absolute()) for path in plans),
                    benches=tuple(str(Path(file).absolute()) for file in named),
                    parallel=arguments.parallel,
                    budget_s=arguments.budget,
                    run_budget_s=arguments.run_budget,
                    quarantine=str(arguments.quarantine.absolute()) if arguments.quarantine else None,
                    begun_s=time.time(),
                )
            )
            directory = None
        return _run(night, directory, records, unfinished)


def _run(night: Night, directory: Path | None, records: Path, unfinished: Unfinished) -> int:
    from rig.plan.together import load_plans
    from rig.record import RunSet, from_here

    order = night.order
    assert order is not None
    plans = load_plans(dict.fromkeys(map(Path, order.plans)))
    places = _places(order)
    quarantine = _quarantine(order)
    if directory is None:
        directory = RunSet.create(records, ["rig", *sys.argv[1:]]).directory
        journal = Journal(directory)
    else:
        records = directory.parent
        journal = Journal(directory)
        journal.note(f"the night was cut off and went on at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    today = datetime.fromtimestamp(order.begun_s).date()
    jobs, left_out = all_jobs(places, _points(plans), quarantine, _failed_before(records), today)
    journal.begin(order, jobs)
    unfinished.set(directory)
    for job, reason in left_out:
        journal.leave_out(job, reason)
    for entry in quarantine:
        if entry.expired(today):
            what = " on ".join(name for name in (entry.plan, entry.bench and f"bench {entry.bench}") if name)
            journal.note(f"the quarantine of {what} expired on {entry.until}: take it out, or say why it goes on")
    paths = {plan.plan.plan: str(plan.path) for plan in plans}
    runs = [job for job in jobs if not job.compares]
    done = sum(bool(night.of(job)) for job in runs)
    left = f", {done} of them done before" if done else ""
    where = ", ".join(place.name for place in places)
    print(f"{len(runs)} runs{left} on {where}; records in {from_here(directory)}")
    Running(order, directory, places, jobs, paths, night, journal, _say).run()
    journal.end()
    journal.close()
    unfinished.clear()
    return _finish(records, directory)


def _finish(records: Path, directory: Path) -> int:
    """Page, messages and exit code of a night that is over."""
    from rig.history.index import rebuild

    try:
        morning, standings = morning_of(records, directory)
    except InternalError as error:
        # The index can be made again, the night cannot.
        print(f"{error}\nmaking the index again", file=sys.stderr)
        rebuild(records)
        morning, standings = morning_of(records, directory)
    code = exit_code_of(read_journal(directory), failed=morning.failed)
    _publish(morning, standings, records, [directory, records / MORNING], code)
    return code


def exit_code_of(night: Night, *, failed: bool = False) -> int:
    """By what stands of each job.

    failed: a record of this night holds a FAIL; the journal may lack it, where the worker was killed before it told.
    """
    from rig.cli import exit_code
    from rig.timing.verdict import Verdict

    verdicts = [Verdict(verdict_of(night, job)) for job in night.known_jobs]
    if night.unread:
        verdicts.append(Verdict.ERROR)
    if failed:
        verdicts.append(Verdict.FAIL)
    return exit_code(verdicts)


def morning_of(records: Path, directory: Path | None, until: datetime | None = None) -> tuple[Morning, list[Standing]]:
    """The morning after the night with this set, and every standing behind it.

    directory: None for a night in which there was none, which then ends at `until`.
    """
    from rig.history.index import index_path, update
    from rig.history.questions import FOREVER, standings
    from rig.history.schema import connect
    from rig.nightly.morning import make_morning

    for what in update(records).unread:
        print(f"not in the history: {what}", file=sys.stderr)
    night = read_journal(directory) if directory is not None else Night()
    until_ms = FOREVER if until is None else round(until.timestamp() * 1000)
    with connect(index_path(records)) as connection:
        if directory is not None and until is None:
            # As it stood then, should later nights be in the index already.
            last = connection.execute(
                "SELECT max(started_ms) FROM runs WHERE set_id = ?", (directory.name,)
            ).fetchone()[0]
            until_ms = FOREVER if last is None else last + 1
        found = list(standings(connection, until_ms=until_ms, origin="nightly"))
    ran = [one.now.result.started_ms for one in found if directory and one.now.result.set_id == directory.name]
    begun_s = night.order.begun_s if night.order else min(ran) / 1000 if ran else None
    title = f"Morning of {_morning_after(begun_s, until or datetime.now(UTC)):%Y-%m-%d}"
    return make_morning(title, directory.name if directory else None, found, night, records), found


def _morning_after(begun_s: float | None, now: datetime) -> date:
    """Local date of the morning on which a night is read; of `now` where there was none."""
    if begun_s is None:
        return now.astimezone().date()
    # What begins in the afternoon or in the evening is read on the next day.
    return (datetime.fromtimestamp(begun_s) + timedelta(hours=12)).date()


def _report(records: Path) -> int:
    if not records.is_dir():
        raise UsageError(f"there are no records in {records}", hint="name the folder of the nights: --record-dir DIR")
    now = datetime.now(UTC)
    recent = [path.parent for path in records.glob(f"*/{JOURNAL}")]
    begun = {path: read_journal(path) for path in sorted(recent)[-20:]}
    since = (now - LOOK_BACK).timestamp()
    # A clock that was once ahead must not make one night that of every morning to come.
    tonight = [path for path, night in begun.items() if since <= _begun_s(path, night) <= now.timestamp()]
    directory = tonight[-1] if tonight else None
    morning, standings = morning_of(records, directory, now)
    code = 3 if directory is None else exit_code_of(begun[directory], failed=morning.failed)
    _publish(morning, standings, records, [records / MORNING], code)
    return code


def _begun_s(directory: Path, night: Night) -> float:
    """When a night began; where another version of the rig wrote its journal, when it last did so."""
    if night.order is not None:
        return night.order.begun_s
    return (directory / JOURNAL).stat().st_mtime if night.unread else 0.0


def _publish(morning: Morning, standings: Sequence[Standing], records: Path, places: Sequence[Path], code: int) -> None:
    from rig.nightly.notify import Message, notify
    from rig.nightly.page_html import page
    from rig.nightly.page_markdown import markdown
    from rig.nightly.reports import code_quality, github_annotations, junit
    from rig.record import from_here, write_atomic
    from rig.terminal import printable

    text = markdown(morning)
    for place in places:
        place.mkdir(exist_ok=True)
        write_atomic(place / "morning.html", page(morning, records, place).encode())
        write_atomic(place / "morning.md", text.encode())
        write_atomic(place / "junit.xml", junit(morning, standings))
        write_atomic(place / "codequality.json", code_quality(morning).encode())
    print("", *map(printable, text.splitlines()), "", f"page: {from_here(places[-1] / 'morning.html')}", sep="\n")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github_annotations(morning):
            print(line)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(text)
    html = page(morning, records, places[-1])
    for trouble in notify(Message(morning.title, morning.headline, text, html, code), os.environ):
        print(f"notification failed: {trouble}", file=sys.stderr)


def _say(line: str) -> None:
    from rig.terminal import printable

    print(printable(line), flush=True)


# --- what a night is made of ------------------------------------------------------------------------------------------


def _points(plans: Sequence[PlanFile]) -> list[tuple[str, str, int]]:
    from rig.plan.order import interleaved

    points = []
    for plan in plans:
        turns: dict[str, int] = {}
        for point in interleaved(plan.points, plan.plan.repeat):
            turns[point.name] = turns.get(point.name, 0) + 1
            points.append((plan.plan.plan, point.name, turns[point.name]))
        if plan.plan.comparisons:
            points.append((plan.plan.plan, "", COMPARISONS))
    return points


def _places(order: Order) -> list[BenchPlace]:
    from rig.bench.load import load_bench

    places = []
    for file in order.benches:
        bench = load_bench(Path(file))
        workers = order.parallel if bench.emulation is not None else 1
        places.append(BenchPlace(bench.bench, file, max(1, workers)))
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--bench names {', '.join(twice)} twice", hint="use --parallel for more emulated ones")
    return places


def _quarantine(order: Order) -> tuple[Entry, ...]:
    from rig.project import ROOT

    if order.quarantine:
        return load_quarantine(Path(order.quarantine), required=True)
    return load_quarantine(ROOT / QUARANTINE)


def _failed_before(records: Path) -> Callable[[Job], int]:
    """Ranks jobs by what became of them last: red, then undecided, then new ones, then green."""
    from rig.history.index import index_path, update
    from rig.history.questions import standings
    from rig.history.schema import connect

    ranks: dict[tuple[str, str], int] = {}
    try:
        update(records)
        with connect(index_path(records)) as connection:
            for one in standings(connection, brief=True):
                key = (one.key.bench, one.key.name.rpartition("::")[0])
                rank: Mapping[str, int] = {"red": 0, "open": 1, "skip": 3, "green": 3}
                ranks[key] = min(ranks.get(key, 3), rank[one.now.state])
    except InternalError as error:
        print(f"{error}\nthe night takes the plans in their order", file=sys.stderr)
    return lambda job: ranks.get((job.bench, job.title), 2)
