"""The board's reset, boot and power lines: modem signals of its serial port, the emulator, a lab's program, or none.

A driver is one class and one entry of DRIVERS. `asserted` means: reset held, boot ROM selected, power on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from rig.bench.model import ControlLine, PowerLine
from rig.board.command import run_command
from rig.board.serial_port import SerialPort
from rig.deadline import Deadline
from rig.errors import BoardError

RESET_PULSE_S = 0.01
"""How long reset is held. STM32 needs 20 us (NRST, RM0385 5.1.2); 100 nF on the pin and a USB adapter need more."""

SPARE_S = 1.0
"""So that a program meets its own deadline first."""

Role = Literal["reset", "boot", "power"]


class EmulatedBoard(Protocol):
    """What the emulated bench offers in place of wires."""

    def set_reset(self, asserted: bool) -> None: ...

    def set_boot(self, asserted: bool) -> None: ...

    def power(self, on: bool) -> None: ...


class Line(Protocol):
    """One control line."""

    def set(self, asserted: bool, deadline: Deadline) -> None:
        """Drive the line. Raises BoardError when that fails."""

    @property
    def present(self) -> bool:
        """False when nobody can drive it."""


@dataclass(frozen=True)
class Wiring:
    """What drivers may use. port: an open serial port or None; note: takes one line for the board's log."""

    port: SerialPort | None
    port_name: str
    emulated: EmulatedBoard | None
    note: Callable[[str], None]


def make_line(role: Role, config: ControlLine | PowerLine, wiring: Wiring) -> Line:
    """The driver that the bench file names for a line."""
    return DRIVERS[config.driver](role, config, wiring)


def driven_within_s(line: ControlLine | PowerLine) -> float:
    """The longest that driving the line once takes, in s: the deadline of its program; 0 for other drivers."""
    return max((program.deadline / 1e9 for program in (line.on, line.off) if program is not None), default=0.0)


def own_time(line: ControlLine | PowerLine) -> Deadline:
    """Long enough to drive the line once: for what must be put back although a phase's time is over."""
    return Deadline.after(driven_within_s(line) + SPARE_S)


def released_level(config: ControlLine, driver: Literal["dtr", "rts"]) -> bool:
    """The state a modem signal must have at open so that a line wired to it stays released."""
    return config.inverted if config.driver == driver else False


def enter_bootloader(reset: Line, boot: Line, deadline: Deadline) -> None:
    """Boot line asserted, reset pulsed: the boot ROM runs afterwards (AN2606, boot pin patterns)."""
    boot.set(True, deadline)
    _pulse(reset, deadline)


def start_application(
    reset: Line, boot: Line, deadline: Deadline, while_held: Callable[[], object] = lambda: None
) -> None:
    """Boot line released, reset pulsed: the flashed image runs afterwards. `while_held` is called with reset held."""
    boot.set(False, deadline)
    _pulse(reset, deadline, while_held)


def _pulse(reset: Line, deadline: Deadline, while_held: Callable[[], object] = lambda: None) -> None:
    reset.set(True, deadline)
    try:
        time.sleep(RESET_PULSE_S)
        while_held()
    finally:
        reset.set(False, deadline)


class _ModemLine:
    present = True

    def __init__(self, role: Role, config: ControlLine | PowerLine, wiring: Wiring) -> None:
        assert isinstance(config, ControlLine)
        self._name: Literal["dtr", "rts"] = "dtr" if config.driver == "dtr" else "rts"
        self._role, self._inverted, self._port = role, config.inverted, wiring.port

    def set(self, asserted: bool, deadline: Deadline) -> None:
        if self._port is None:
            raise BoardError(f"the {self._role} line is {self._name.upper()} of a serial port that is not open")
        self._port.set_modem_line(self._name, asserted != self._inverted)


class _EmulatedLine:
    present = True

    def __init__(self, role: Role, config: ControlLine | PowerLine, wiring: Wiring) -> None:
        if wiring.emulated is None:
            raise BoardError(
                f"the {role} line's driver is `emulated`, but this bench is not an emulated one",
                hint="choose dtr, rts, command or none for it in the bench file",
            )
        board = wiring.emulated
        self._drive = {"reset": board.set_reset, "boot": board.set_boot, "power": board.power}[role]

    def set(self, asserted: bool, deadline: Deadline) -> None:
        self._drive(asserted)


class _CommandLine:
    present = True

    def __init__(self, role: Role, config: ControlLine | PowerLine, wiring: Wiring) -> None:
        if config.on is None or config.off is None:
            raise BoardError(
                f"the {role} line's driver is `command`, but the bench file does not give both `on` and `off`",
                hint="`on` asserts the line (reset held, boot ROM selected, power on), `off` is the opposite",
            )
        self._on, self._off, self._wiring = config.on, config.off, wiring

    def set(self, asserted: bool, deadline: Deadline) -> None:
        command = self._on if asserted else self._off
        run_command(command, {"port": self._wiring.port_name}, deadline, self._wiring.note)


class _NoLine:
    present = False

    def __init__(self, role: Role, config: ControlLine | PowerLine, wiring: Wiring) -> None:
        pass

    def set(self, asserted: bool, deadline: Deadline) -> None:
        pass


DRIVERS: dict[str, Callable[[Role, ControlLine | PowerLine, Wiring], Line]] = {
    "dtr": _ModemLine,
    "rts": _ModemLine,
    "emulated": _EmulatedLine,
    "command": _CommandLine,
    "none": _NoLine,
}
