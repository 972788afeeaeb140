"""From a case to ranked causes: every rule is asked, in one fixed order, and says what speaks for and against it.

A rule is data: a name, a side, the class of its wire picture, the experiment that would confirm it, and one pure
function. Scores say how well the evidence fits, from 0 to 1; below `BELIEVED` nothing is claimed. Of equal scores the
rule examined earlier comes first: a bad capture explains a bad board, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from rig.timing.verdict import Verdict

if TYPE_CHECKING:
    from rig.triage.case import Case

BELIEVED: Final = 0.5
SHOWN: Final = 0.2

Side = Literal["bench", "capture", "clock", "link", "jetson", "board", "plan"]
Stage = Literal[
    "capture", "clock", "duplication and offload", "reassembly", "ICMP", "ARP and link", "Jetson", "board", "plan"
]
ORDER: Final[tuple[Stage, ...]] = (
    "capture", "clock", "duplication and offload", "reassembly", "ICMP", "ARP and link", "Jetson", "board", "plan",
)  # fmt: skip


@dataclass(frozen=True)
class Clue:
    """One piece of evidence: a sentence with its figures, and frames (numbers in the file) that show it."""

    text: str
    frames: tuple[int, ...] = ()


@dataclass(frozen=True)
class Support:
    """What a rule found. score 0 to 1: how well its cause fits. about: words for the headline, such as a size.

    explains_ns: the most by which the cause makes one packet later than usual, None where nobody can say.
    experiment: takes the place of the rule's where the case allows to be concrete.
    """

    score: float
    for_it: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    about: str = ""
    explains_ns: int | None = None
    experiment: str = ""


@dataclass(frozen=True)
class Rule:
    """A cause that triage knows.

    name: stable key. stage: when it is examined. side: whose fault it would be. title: the cause as a sentence.
    picture: class of causes that look the same on the wire. experiment: what would confirm it, as an instruction.
    examine: gives None where the case lacks what the rule needs, or shows nothing of it.
    """

    name: str
    stage: Stage
    side: Side
    title: str
    picture: str
    experiment: str
    examine: Callable[[Case], Support | None]
    fault: bool = True
    """False for what explains a verdict without anything being broken."""


@dataclass(frozen=True)
class Cause:
    """A rule that found something."""

    rule: Rule
    support: Support

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def score(self) -> float:
        return self.support.score

    @property
    def headline(self) -> str:
        """Title with what was measured."""
        return self.rule.title + (f": {self.support.about}" if self.support.about else "")

    @property
    def experiment(self) -> str:
        """What would confirm it, here."""
        return self.support.experiment or self.rule.experiment

    @property
    def step(self) -> tuple[str, str]:
        """The experiment as (sentence, command to copy): a command that ends the sentence stands apart."""
        text, _, command = self.experiment.removesuffix("`").rpartition(": `")
        if not text or "`" in command or not self.experiment.endswith("`"):
            return self.experiment, ""
        return f"{text}:", command


@dataclass(frozen=True)
class Diagnosis:
    """causes: best first, all with a score of at least SHOWN. examined: rules that were asked. red: something is wrong
    by the verdict. blind: there is no capture to look at."""

    causes: tuple[Cause, ...]
    examined: int
    red: bool
    blind: bool = False

    @property
    def first(self) -> Cause | None:
        """The cause that triage believes in, if any."""
        return self.causes[0] if self.causes and self.causes[0].score >= BELIEVED else None

    @property
    def sentence(self) -> str:
        """What triage says, in one line."""
        first = self.first
        if first is not None:
            return first.headline
        if self.blind:
            return "unknown: there is no capture in which a cause could show"
        if self.red:
            return "unknown: no cause fits well enough"
        return "nothing wrong was found"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are examined."""
    from rig.triage.rules import RULES

    return tuple(sorted(RULES, key=lambda rule: ORDER.index(rule.stage)))


def diagnose(case: Case) -> Diagnosis:
    """Ask every rule about a case."""
    rules = all_rules()
    found = [Cause(rule, support) for rule in rules if (support := rule.examine(case)) is not None]
    place = {rule.name: index for index, rule in enumerate(rules)}
    ranked = sorted(
        (cause for cause in found if cause.score >= SHOWN), key=lambda cause: (-cause.score, place[cause.name])
    )
    red = case.result is not None and case.result.verdict not in (Verdict.PASS, Verdict.SKIP)
    if red and ranked and ranked[0].score >= BELIEVED:
        ranked[0] = _with_doubts(case, ranked[0])
    return Diagnosis(tuple(ranked), len(rules), red, blind=not case.capture.is_file())


def _with_doubts(case: Case, first: Cause) -> Cause:
    """The first cause, and what of the violations it cannot explain. The score stays: one cause may not be all."""
    from rig.triage.outliers import unexplained

    doubts = tuple(unexplained(case, first.support.explains_ns))
    support = replace(first.support, against=(*first.support.against, *doubts))
    return replace(first, support=support) if doubts else first


def picture_of(name: str) -> str:
    """The wire picture of a cause by its name; `none` for none."""
    return next((rule.picture for rule in all_rules() if rule.name == name), name)
