"""What the morning reader wants to know, as data: what broke, since when, on which bench, and what was not run and why.

Made from the index and the night's journal; the pages only lay it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from rig.history.series import Standing
from rig.history.table import day, drift_sentence, follows, when
from rig.nightly.journal import NAME as JOURNAL
from rig.nightly.journal import Job, Night
from rig.nightly.night import settled_verdict, verdict_of
from rig.timing.verdict import Verdict

STALE_MS: Final = 14 * 86_400_000
"""A check that has not been looked at for so long is no longer missed."""


@dataclass(frozen=True)
class Item:
    """One check that deserves a line, on the benches where it is so. where: what the benches tell."""

    name: str
    standings: tuple[Standing, ...]
    sentence: str
    where: str = ""

    @property
    def benches(self) -> tuple[str, ...]:
        return tuple(one.key.bench for one in self.standings)


@dataclass(frozen=True)
class NotRun:
    """Something whose verdict no check shows this morning. checks: those concerned where others of the same run are
    not. records: what there is all the same. verdict: what it counts as.
    """

    title: str
    bench: str
    reason: str
    checks: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    verdict: str = "ERROR"


@dataclass(frozen=True)
class Again:
    """A job with several attempts: their verdicts in order, what counts, and why each of them is as it is."""

    title: str
    bench: str
    verdicts: tuple[str, ...]
    settled: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Morning:
    """The page. dead: nothing was run at all. green: checks in order. health: bench → what is wrong with it."""

    title: str
    set_id: str | None
    begun: str
    ended: str
    dead: bool
    new: tuple[Item, ...] = ()
    still: tuple[Item, ...] = ()
    fixed: tuple[Item, ...] = ()
    flaky: tuple[Item, ...] = ()
    drifting: tuple[Item, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    again: tuple[Again, ...] = ()
    health: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    firmware: dict[str, tuple[str, ...]] = field(default_factory=dict)
    green: int = 0
    steady: tuple[Standing, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a record of this night holds a FAIL."""
        shown = (one for item in (*self.new, *self.still, *self.flaky) for one in item.standings)
        return any(one.now.state == "red" for one in shown)

    @property
    def headline(self) -> str:
        """One line: also subject of mails and title of annotations."""
        if self.dead:
            return "no run was made"
        parts = [
            f"{len(items)} {word}"
            for items, word in (
                (self.new, "newly failing"),
                (self.still, "still failing"),
                (self.fixed, "fixed"),
                (self.flaky, "flaky"),
                (self.drifting, "drifting"),
                (self.not_run, "not run"),
            )
            if items
        ]
        return ", ".join(parts) or f"all {self.green} checks in order"


def make_morning(title: str, set_id: str | None, standings: Iterable[Standing], night: Night, records: Path) -> Morning:
    """The morning after the set `set_id`; after a night without any set where that is None.

    standings: every series as it stood at the end of that night, from nightly sets only.
    """
    everything = list(standings)
    tonight = [one for one in everything if one.now.result.set_id == set_id]
    latest = max((one.now.result.started_ms for one in everything), default=0)
    red = [one for one in tonight if one.now.state == "red" and not one.flaky]
    flaky = [one for one in tonight if one.flaky and one.now.state in ("red", "green")]
    drifting = [one for one in tonight if one.drift is not None and not one.flaky and one.now.state == "green"]
    new = [one for one in red if one.before != "red"]
    fixed = [one for one in tonight if one.now.state == "green" and one.before == "red" and not one.flaky]
    of_tonight = {id(one) for one in tonight}
    missed = [one for one in everything if id(one) not in of_tonight and latest - one.now.result.started_ms < STALE_MS]
    named = {id(one) for one in [*red, *flaky, *drifting, *fixed]}
    begun = min((when(one.now) for one in tonight), default="")
    return Morning(
        title=title,
        set_id=set_id,
        begun=begun,
        ended=night.ended_utc,
        dead=set_id is None or (not tonight and not night.attempts and not night.not_run),
        new=_items(new, tonight, _failed),
        still=_items([one for one in red if one.before == "red"], tonight, _failed),
        fixed=_items(fixed, tonight, _fixed),
        flaky=_items(flaky, tonight, _flaky),
        drifting=_items(drifting, tonight, _drifting),
        not_run=tuple(_not_run(tonight, missed, night)),
        again=tuple(_again(night)),
        health=night.health,
        notes=tuple(night.notes),
        firmware=_firmware(tonight),
        green=sum(one.now.state == "green" for one in tonight),
        steady=tuple(one for one in tonight if id(one) not in named and one.now.state == "green"),
    )


def by_reason(missing: Sequence[NotRun]) -> list[tuple[NotRun, tuple[str, ...]]]:
    """For the eye: what one bench did not run for one reason, in one entry with all titles."""
    groups: dict[object, list[NotRun]] = {}
    for one in missing:
        # What has checks or records of its own stands alone.
        groups.setdefault(one if one.checks or one.records else (one.bench, one.reason), []).append(one)
    return [(group[0], tuple(one.title for one in group)) for group in groups.values()]


def _items(chosen: Sequence[Standing], tonight: Sequence[Standing], say) -> tuple[Item, ...]:  # type: ignore[no-untyped-def]
    items = []
    for name, group in groupby(sorted(chosen, key=lambda one: (one.key.name, one.key.bench)), lambda one: one.key.name):
        mine = tuple(group)
        looked = {one.key.bench for one in tonight if one.key.name == name and one.now.state in ("green", "red")}
        sentences = dict.fromkeys(str(say(one)) for one in mine)
        items.append(Item(name, mine, "; ".join(sentences), _where({one.key.bench for one in mine}, looked)))
    return tuple(items)


def _where(mine: set[str], looked: set[str]) -> str:
    """What the other benches tell: a fault that is everywhere travels with the product."""
    others = sorted(looked - mine)
    if others:
        return f"not on {', '.join(others)}: look at the bench first"
    return f"on all {len(mine)} benches: look at the product first" if len(mine) > 1 else ""


def _failed(one: Standing) -> str:
    assert one.since is not None
    if one.last_good is None:
        return f"failing since {day(one.since)}, never seen to pass"
    mixed = "; passed when it was measured once more" if one.now.mixed else ""
    return f"failing since {day(one.since)}, {follows(one)}{mixed}"


def _fixed(one: Standing) -> str:
    last = next(earlier for earlier in reversed(one.settled) if earlier.state == "red")
    return f"passes again; failed last on {day(last)}"


def _flaky(one: Standing) -> str:
    tonight = "failed" if one.now.state == "red" else "passed"
    return f"changed colour in {one.flips} of {one.pairs} nights ({one.flaky_rate:.0%}) with nothing changed; {tonight}"


def _drifting(one: Standing) -> str:
    assert one.drift is not None
    assert one.drift_since is not None
    return f"{drift_sentence(one.drift)}; since {day(one.drift_since)}"


def _not_run(tonight: Sequence[Standing], missed: Sequence[Standing], night: Night) -> list[NotRun]:
    states: dict[tuple[str, str], set[str]] = {}
    for one in tonight:
        states.setdefault(_place(one), set()).add(one.now.state)
    hidden: dict[tuple[str, str], list[NotRun]] = {}
    for job in night.known_jobs:
        place = (job.bench, job.title)
        if (missing := _hidden(job, night, states.get(place, set()))) is not None:
            hidden.setdefault(place, []).append(missing)
    found = {place: _together(several) for place, several in hidden.items()}
    if night.unread:
        lines = ", ".join(map(str, night.unread))
        reason = f"{JOURNAL}: written by another version of the rig, line {lines} cannot be used"
        found["", ""] = NotRun("journal of this night", "all benches", reason)
    undecided = [one for one in tonight if one.now.state in ("open", "skip")]
    for (bench, title), group in groupby(sorted(undecided, key=_place), key=_place):
        if (bench, title) in found:
            continue
        several = list(group)
        first = several[0].now.result
        reason = f"{first.verdict}: {first.error or first.reason}"
        whole = sum(_place(one) == (bench, title) for one in tonight) == len(several)
        checks = () if whole else tuple(one.key.check for one in several)
        found[bench, title] = NotRun(title, bench, reason, checks, (first.folder,), first.verdict)
    ran = states.keys() | {(job.bench, job.title) for job in night.known_jobs}
    for place, group in groupby(sorted(missed, key=_place), key=_place):
        if place in found:
            continue
        several = list(group)
        if place in ran:
            why = "the run of this night has no result of it"
        else:
            why = "not among the plans and benches of this night" if ran else "nothing was run"
        last = max(several, key=lambda one: one.now.result.started_ms)
        checks = tuple(one.key.check for one in several) if place in states else ()
        found[place] = NotRun(place[1], place[0], f"{why}; last result {day(last.now)}", checks)
    return [found[key] for key in sorted(found)]


def _hidden(job: Job, night: Night, states: set[str]) -> NotRun | None:
    """A job whose verdict no check shows; None for others. states: of the checks of all runs with its title."""
    made, verdict = night.of(job), verdict_of(night, job)
    if not made:
        cut = "begun and without an end" if job in night.begun else "not begun"
        reason = night.not_run.get(job, f"{cut}: the night was cut off or is still at work")
        return NotRun(job.title, job.bench, reason, verdict=verdict)
    told = {
        "PASS": True,
        # Of several runs a check shows what failed, but not what one of them left open and another one passed.
        "FAIL": "red" in states,
        "INCONCLUSIVE": not states.isdisjoint(("red", "open")),
        # A comparison that decides nothing, for want of a bound, is not missed.
        "SKIP": job.compares,
    }
    if told.get(verdict, False):
        return None
    sentence = next(one.sentence for one in reversed(made) if one.verdict == verdict)
    records = tuple(one.record for one in made if one.record)
    return NotRun(job.title, job.bench, sentence, (), records, verdict)


def _together(several: Sequence[NotRun]) -> NotRun:
    """The runs of one title on one bench as one entry, the worst first."""
    ordered = sorted(several, key=lambda one: list(Verdict).index(Verdict(one.verdict)))
    reasons = dict.fromkeys(one.reason for one in ordered)
    records = tuple(record for one in ordered for record in one.records)
    return replace(ordered[0], reason="; ".join(reasons), records=records)


def _place(one: Standing) -> tuple[str, str]:
    return one.key.bench, one.key.name.rpartition("::")[0]


def _again(night: Night) -> list[Again]:
    again = []
    for job in dict.fromkeys(attempt.job for attempt in night.attempts):
        mine = night.of(job)
        if len(mine) > 1:
            verdicts = tuple(attempt.verdict for attempt in mine)
            sentences = tuple(attempt.sentence for attempt in mine)
            again.append(Again(job.title, job.bench, verdicts, settled_verdict(mine), sentences))
    return again


def _firmware(tonight: Sequence[Standing]) -> dict[str, tuple[str, ...]]:
    """Bench → builds that ran on it."""
    found: dict[str, dict[str, None]] = {}
    for one in tonight:
        if one.now.result.build:
            found.setdefault(one.key.bench, {})[one.now.result.build[:12]] = None
    return {bench: tuple(builds) for bench, builds in sorted(found.items())}
