"""What is done about a silent board: reset, then a power cycle, then somebody has to look. Every step is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rig.bench import model
from rig.board.flash.flasher import OWNS_PORT
from rig.board.lines import driven_within_s
from rig.board.report import BoardSilentError
from rig.board.wires import PORT_BACK_S
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
    """The longest that `Board.reset_and_boot` takes with every step, in s: what a phase should allow it.

    The lab's programs have their deadlines, and after each step the board has its whole `boot_budget`.
    """
    wait_s = board.boot_budget / 1e9
    if board.power.driver == "none":
        return _reset_bound_s(board) + wait_s
    return _reset_bound_s(board) + wait_s + _power_cycle_bound_s(board) + wait_s


def flash_programs_bound_s(board: model.Board, regions: int) -> float:
    """The longest that the lab's programs take while `regions` regions are flashed, in s; 0 where there are none."""
    flash, enter_s = board.flash, _reset_bound_s(board)
    if flash.driver not in OWNS_PORT:
        return enter_s + (0.0 if board.power.driver == "none" else _power_cycle_bound_s(board))
    write, read = (0.0 if one is None else one.deadline / 1e9 for one in (flash.command, flash.read))
    lend_s = enter_s + PORT_BACK_S
    if flash.read is None:
        # The banner has to show what runs: once for the image, once for the identity.
        return regions * (lend_s + write) + 2 * (enter_s + board.boot_budget / 1e9)
    return regions * (3 * lend_s + write + 2 * read)


def _reset_bound_s(board: model.Board) -> float:
    return driven_within_s(board.boot) + 2 * driven_within_s(board.reset)


def _power_cycle_bound_s(board: model.Board) -> float:
    """With a port that goes with the power: the board is then reset once more."""
    switch_s = 2 * driven_within_s(board.power) + board.power.off_for / 1e9
    return driven_within_s(board.boot) + switch_s + PORT_BACK_S + _reset_bound_s(board)
