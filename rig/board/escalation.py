"""What is done about a silent board: reset, then a power cycle, then somebody has to look. Every step is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rig.bench import model
from rig.board.report import BoardSilentError
from rig.board.wires import PORT_BACK_S, POWER_ON_S
from rig.deadline import Deadline

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One way to wake a board. name: as in `silent after a reset`; act: does it."""

    name: str
    act: Callable[[], None]


def wake(steps: Sequence[Step], listen: Callable[[], T], deadline: Deadline, tell: Callable[[str], None]) -> T:
    """Take one step after another until `listen` hears the board; a later step only for a board that stays silent.

    listen: returns what it heard, or raises BoardSilentError; any other error ends it at once. tell: takes a sentence
    for each step beyond the first. Raises BoardSilentError that names all steps, with what was heard last.
    """
    silences: list[BoardSilentError] = []
    tried = ""
    for step in steps:
        if silences and deadline.expired():
            tried += f", and no time was left for {step.name}"
            break
        if silences:
            tell(f"silent {tried}: {step.name}")
        step.act()
        try:
            heard = listen()
        except BoardSilentError as error:
            tried += f", nor after {step.name}" if silences else f"after {step.name}"
            silences.append(error)
            continue
        if silences:
            tell(f"it answers after {step.name}")
        return heard
    last = silences[-1]
    seen = next((error.seen for error in reversed(silences) if error.seen), None)
    raise BoardSilentError(f"{last.what} {tried}", seen=seen, hint=last.hint) from last


def by_hand(power: model.PowerLine) -> str:
    """The next step for a person, for the end of a hint: what the rig could not do itself."""
    if power.driver == "none":
        return "power-cycle the board by hand; with a `power:` line in the bench file the rig does it itself"
    return "a power cycle did not help: look at the board"


def boot_bound_s(board: model.Board) -> float:
    """The longest that `Board.reset_and_boot` takes with every step, in s: what a phase should allow it."""
    wait_s = board.boot_budget / 1e9
    if board.power.driver == "none":
        return wait_s
    return 2 * wait_s + board.power.off_for / 1e9 + PORT_BACK_S + POWER_ON_S
