"""One night: all plans on all benches, last failures first, within its budgets; what is left of one after a reboot.

Reads top to bottom as a night goes: examine each bench, hand out jobs, look at what came back, try again what deserves
it, and say of every job that was not run why.
"""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from rig.deadline import Deadline
from rig.nightly.journal import TRIES, Attempt, Job, Journal, Night, Order
from rig.nightly.lane import WORKER, Lane
from rig.nightly.quarantine import QUARANTINED, Entry, covering
from rig.nightly.retries import rule_for
from rig.nightly.worker import EXAMINATION_S, Settings

DUBIOUS: Final = 2
"""INCONCLUSIVE attempts in a row that put a bench in doubt."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class BenchPlace:
    """A bench of the night: the name in its file, and how many workers share its jobs (instances of emulated ones)."""

    name: str
    file: str
    workers: int = 1


class Running:
    """The night at work. `paths` maps plan names to files; `program` is what a worker is started as."""

    def __init__(
        self,
        order: Order,
        directory: Path,
        benches: Sequence[BenchPlace],
        jobs: Sequence[Job],
        paths: dict[str, str],
        past: Night,
        journal: Journal,
        say: Say,
        program: tuple[str, ...] = WORKER,
    ) -> None:
        self._order, self._directory, self._paths = order, directory, paths
        self._journal, self._say, self._program = journal, say, program
        left = order.begun_s + order.budget_s - time.time()  # a reboot is part of the night
        # A clock that was set back must not make the night longer.
        self._budget = Deadline.after(max(0.0, min(left, order.budget_s)))
        self._attempts: dict[Job, int] = dict(past.begun)
        self._made: dict[Job, list[Attempt]] = {job: past.of(job) for job in jobs}
        self._queues: dict[str, deque[Job]] = {place.name: deque() for place in benches}
        for job in jobs:
            if self._is_open(job):
                self._queues[job.bench].append(job)
            elif not self._made[job]:
                self._leave_out(job, f"it was cut off {self._attempts[job]} times, the whole night with it")
        self._lanes = [self._lane(place, number) for place in benches for number in range(place.workers)]
        self._experiments = {(job.bench, job.plan) for job in jobs if job.compares}
        self._homes: dict[tuple[str, str], Lane] = {}

    def run(self) -> None:
        """Until nothing is left to do. KeyboardInterrupt ends the workers and goes on up."""
        try:
            while lanes := [lane for lane in self._lanes if not lane.done]:
                for lane in lanes:
                    if not lane.busy:
                        self._next(lane)
                busy = [lane for lane in self._lanes if lane.busy]
                if busy:
                    self._wait(busy)
        finally:
            for lane in self._lanes:
                lane.end()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _next(self, lane: Lane) -> None:
        queue = self._queues[lane.bench]
        if not queue:
            lane.end()
            # Another worker of the same bench may still bring a job back.
            lane.done = not any(other.busy for other in self._lanes if other.bench == lane.bench)
            return
        if self._budget.expired():
            self._leave_out_all(lane, f"the night's budget of {_hours(self._order.budget_s)} was used up")
            return
        if lane.healthy is None:
            lane.job = None
            lane.send({"do": "health"}, self._budget.at_most(EXAMINATION_S * 1.5))
            return
        job = self._choose(lane)
        if job is None:
            return  # until another worker of the bench is done
        queue.remove(job)
        lane.job, lane.attempt = job, self._attempts.get(job, 0) + 1
        self._attempts[job] = lane.attempt
        self._journal.attempt_begins(job, lane.attempt)
        again = f", attempt {lane.attempt}" if lane.attempt > 1 else ""
        self._say(f"{lane.name:<16} {job.title}{', comparisons' if job.compares else ''}{again}")
        what: dict[str, Any] = {"do": "compare"}
        if not job.compares:
            what = {"do": "run", "point": job.point, "attempt": lane.attempt}
        lane.send({"plan": self._paths[job.plan]} | what, self._budget.at_most(self._order.run_budget_s))

    def _choose(self, lane: Lane) -> Job | None:
        """The next job that this worker may take: what is compared runs on one worker, and is compared when all of it
        is over."""
        queue = self._queues[lane.bench]
        at_work = [one.job for one in self._lanes if one.busy and one.bench == lane.bench and one.job is not None]
        for job in queue:
            if (job.bench, job.plan) in self._experiments:
                home = self._homes.get((job.bench, job.plan), lane)
                if home is not lane and not home.done:
                    continue
                if job.compares and any(one.plan == job.plan and one != job for one in (*queue, *at_work)):
                    continue
                self._homes[job.bench, job.plan] = lane
            return job
        return None

    def _wait(self, busy: Sequence[Lane]) -> None:
        with selectors.DefaultSelector() as selector:
            for lane in busy:
                selector.register(lane.fileno(), selectors.EVENT_READ, lane)
            ready = selector.select(max(0.0, min(lane.deadline.left() for lane in busy)))
        for key, _ in ready:
            self._take(key.data, key.data.receive())
        for lane in busy:
            if not lane.busy or not lane.deadline.expired():
                continue
            # It may have answered in time, while the teardown of another one kept us from looking.
            if lane.answered():
                self._take(lane, lane.receive())
            else:
                self._overdue(lane)

    # --- what comes back ----------------------------------------------------------------------------------------------

    def _take(self, lane: Lane, told: dict[str, Any] | None) -> None:
        if lane.job is None:
            faults = ["the examination itself ended early, see its log"] if told is None else list(told["faults"])
            self._examined(lane, faults)
        elif told is None:
            sentence = f"ERROR: the worker ended by itself, see {lane.log.name}"
            self._made_one(lane, Attempt(lane.job, lane.attempt, "ERROR", sentence, "rig"))
        else:
            findings = tuple(told["findings"])
            found = (told["verdict"], told["sentence"], told["side"], findings, told["record"])
            self._made_one(lane, Attempt(lane.job, lane.attempt, *found))

    def _overdue(self, lane: Lane) -> None:
        job = lane.job
        lane.end()
        if job is None:
            self._examined(lane, [f"the examination took longer than {EXAMINATION_S * 1.5:g} s"])
            return
        if self._budget.expired():
            reason = f"the night's budget of {_hours(self._order.budget_s)} ended in the middle of it"
            lane.job = None
            self._leave_out(job, reason)
            return
        sentence = f"ERROR: it took longer than {_hours(self._order.run_budget_s)}, the budget of one run"
        self._made_one(lane, Attempt(job, lane.attempt, "ERROR", sentence, "budget"))

    def _examined(self, lane: Lane, faults: Sequence[str]) -> None:
        self._journal.health(lane.name, faults)
        lane.healthy = not faults
        lane.dubious = 0
        self._say(f"{lane.name:<16} {'bench is in order' if not faults else 'BENCH NOT FIT: ' + '; '.join(faults)}")
        if faults:
            lane.end()
            lane.done = True
            others = [one for one in self._lanes if one.bench == lane.bench and not one.done]
            if not others:
                self._leave_out_all(lane, f"bench not fit: {'; '.join(faults)}")

    def _made_one(self, lane: Lane, attempt: Attempt) -> None:
        job, lane.job = attempt.job, None
        self._made[job].append(attempt)
        self._journal.attempt_ends(attempt)
        self._say(f"{lane.name:<16} {job.title}: {attempt.sentence}")
        if not job.compares:
            lane.dubious = lane.dubious + 1 if attempt.verdict == "INCONCLUSIVE" else 0
            if (attempt.verdict == "ERROR" and attempt.side != "plan") or lane.dubious >= DUBIOUS:
                lane.healthy = None
        if self._is_open(job):
            self._queues[job.bench].append(job)

    def _is_open(self, job: Job) -> bool:
        """Whether the job is to be run (again)."""
        made = self._made[job]
        begun = self._attempts.get(job, 0)
        if not made:
            return begun < TRIES
        last = made[-1]
        if begun > last.number:  # cut off by a reboot
            return begun < last.number + TRIES
        verdicts = {attempt.verdict for attempt in made}
        if "FAIL" in verdicts and (len(made) > 1 or job.compares):  # the same records give the same
            return False
        rule = rule_for(last.verdict, last.side, last.findings)
        return rule is not None and len(made) < rule.attempts

    # --- leaving out --------------------------------------------------------------------------------------------------

    def _leave_out_all(self, lane: Lane, reason: str) -> None:
        queue = self._queues[lane.bench]
        while queue:
            self._leave_out(queue.popleft(), reason)

    def _leave_out(self, job: Job, reason: str) -> None:
        # What was run once has its verdict; only the further attempt is missing.
        if not self._made[job]:
            self._journal.leave_out(job, reason)
            self._say(f"{job.bench:<16} {job.title}: not run, {reason}")

    def _lane(self, place: BenchPlace, number: int) -> Lane:
        instance = None if place.workers == 1 else f"n{number}"
        name = place.name if instance is None else f"{place.name}.{instance}"
        records, set_id = self._directory.parent, self._directory.name
        command = ("rig", "nightly", *self._order.plans)
        settings = Settings(place.file, instance, str(records), set_id, command)
        return Lane(name, place.name, settings, self._directory / f"nightly-{name}.log", program=self._program)


def all_jobs(
    benches: Sequence[BenchPlace],
    points: Sequence[tuple[str, str, int]],
    quarantine: Sequence[Entry],
    failed_before: Callable[[Job], int],
    today: date,
) -> tuple[list[Job], list[tuple[Job, str]]]:
    """Every point on every bench, in the order of the night, and those that are quarantined with the reason.

    points: (plan, point, turn). failed_before: rank of a job by what became of it last time, smallest first. A plan
    with comparisons moves as a whole, since the order of its runs counts.
    """
    jobs: list[Job] = []
    left_out: list[tuple[Job, str]] = []
    for place in benches:
        for plan, point, turn in points:
            job = Job(place.name, plan, point, turn)
            entry = covering(quarantine, plan, place.name, today)
            if entry is None:
                jobs.append(job)
            else:
                left_out.append((job, entry.sentence()))
    ranks = {job: failed_before(job) for job in jobs}
    for whole in [job for job in jobs if job.compares]:
        mates = [job for job in jobs if (job.bench, job.plan) == (whole.bench, whole.plan)]
        ranks |= dict.fromkeys(mates, min(ranks[job] for job in mates))
    return sorted(jobs, key=ranks.__getitem__), left_out


def verdict_of(night: Night, job: Job) -> str:
    """What stands of a job: one that was not run is an ERROR, one that was quarantined counts like a skip."""
    made = night.of(job)
    quarantined = not made and night.not_run.get(job, "").startswith(QUARANTINED)
    return "SKIP" if quarantined else settled_verdict(made)


def settled_verdict(attempts: Sequence[Attempt]) -> str:
    """What stands of several attempts: a FAIL for good, else a PASS, else the last; ERROR when there was none."""
    verdicts = [attempt.verdict for attempt in attempts]
    for kept in ("FAIL", "PASS"):
        if kept in verdicts:
            return kept
    return verdicts[-1] if verdicts else "ERROR"


def _hours(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
