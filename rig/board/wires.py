"""Everything that joins the rig to one board: its serial port with the console on it, its reset, boot and power lines.

They go and come back together: modem lines are signals of the port, and a port that is fed by the board vanishes with
the board's power and may return under another name. The name in the bench file is resolved again at each opening.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rig.bench import model
from rig.board.console import Console
from rig.board.lines import (
    EmulatedBoard,
    Wiring,
    enter_bootloader,
    make_line,
    own_time,
    released_level,
    start_application,
)
from rig.board.serial_port import BoardLostError, PortMissingError, SerialPort
from rig.deadline import Deadline
from rig.errors import BoardError
from rig.interrupts import held_back

PORT_BACK_S = 10.0
"""How long a port may take to return after power or a programmer: USB enumeration, udev, who probes new ports."""
PORT_LOOK_S = 0.1


class Wires:
    """Opened at once; `close()` ends it. `console`, `port` and the lines are valid until then."""

    def __init__(self, config: model.Board, log: Path, start_ns: int, emulated: EmulatedBoard | None) -> None:
        self._config, self._emulated = config, emulated
        self.lent_mark = 0
        """The console's mark at which the port was last given back."""
        early: list[str] = []
        self.port = self._open_or_power_on(early.append)
        try:
            self.console = Console(self.port, log, start_ns, config.banner)
            self._connect_lines()
        except BaseException:
            self.port.close()
            raise
        for text in early:
            self.console.note(text)

    def close(self) -> None:
        """Stop reading, close the port. Never raises."""
        self.console.close()
        self.port.close()

    # --- the port ----------------------------------------------------------------------------------------------------

    def _open(self) -> SerialPort:
        reset, boot = self._config.reset, self._config.boot
        return SerialPort.open(
            self._config.serial,
            dtr=released_level(reset, "dtr") or released_level(boot, "dtr"),
            rts=released_level(reset, "rts") or released_level(boot, "rts"),
        )

    def _open_or_power_on(self, note: Callable[[str], None]) -> SerialPort:
        """A port that is missing may lack the board's power, say after a controller that was killed in mid-cycle."""
        try:
            return self._open()
        except PortMissingError:
            if self._config.power.driver == "none":
                raise
            note(f"serial port {self._config.serial.port} is missing: power on")
            power = make_line("power", self._config.power, self._wiring(None, note))
            power.set(True, own_time(self._config.power))
            return self._open_when_back(Deadline.after(PORT_BACK_S))

    def _open_when_back(self, deadline: Deadline) -> SerialPort:
        """Open the port as soon as it is there, permitted and free; at the deadline, say what is in the way."""
        while True:
            try:
                return self._open()
            except BoardError:
                if deadline.left() < PORT_LOOK_S:
                    raise
                time.sleep(PORT_LOOK_S)

    def _take(self, port: SerialPort) -> None:
        self.port = port
        self.console.replace_port(port)
        self._connect_lines()

    @contextlib.contextmanager
    def lent(self, deadline: Deadline) -> Iterator[None]:
        """The port is closed meanwhile: a program has it to itself."""
        with self.console.suspended():
            self.port.close()
            try:
                yield
            finally:
                self._take(self._open_when_back(deadline.at_most(PORT_BACK_S)))
                self.lent_mark = self.console.cut_line()

    def _port_gone(self) -> bool:
        if self.console.lost or not self.port.is_there():
            return True
        try:
            # Only while nobody else reads; a board without power says nothing that would be missed.
            if not self.console.reading:
                self.console.feed(self.port.read_some())
        except BoardLostError:
            return True
        return False

    # --- lines -------------------------------------------------------------------------------------------------------

    def _wiring(self, port: SerialPort | None, note: Callable[[str], None]) -> Wiring:
        return Wiring(port, port.node if port else self._config.serial.port, self._emulated, note)

    def _connect_lines(self) -> None:
        wiring = self._wiring(self.port, self.console.note)
        self.reset = make_line("reset", self._config.reset, wiring)
        self.boot = make_line("boot", self._config.boot, wiring)
        self.power = make_line("power", self._config.power, wiring)

    def start_boot_rom(self, deadline: Deadline) -> None:
        """Boot line asserted, reset pulsed."""
        self.console.note("enter boot ROM")
        enter_bootloader(self.reset, self.boot, deadline)

    def start_application(self, deadline: Deadline) -> int:
        """Boot line released, reset pulsed; the console's mark from which on the new start's lines come."""
        self.console.note("reset into the application")
        marks: list[int] = []
        start_application(self.reset, self.boot, deadline, lambda: marks.append(self._mark_in_reset()))
        return marks[0]

    def _mark_in_reset(self) -> int:
        """The console's mark while the board is held in reset: all that it said before is read first."""
        with self.console.suspended():
            while self.port.waiting():
                self.console.feed(self.port.read_some())
            return self.console.cut_line()

    def release_boot(self) -> None:
        """Boot line released if that can still be done; never raises."""
        with contextlib.suppress(BoardError):
            self.boot.set(False, own_time(self._config.boot))

    def power_cycle(self, boot_rom: bool, deadline: Deadline) -> int:
        """Off, `off_for`, on, with the boot line as wanted; returns the mark from which on the new start's lines come.

        Where the port went with the power, its modem lines and the first words of the board are lost: the port is
        opened again, and a reset line is used once more.
        """
        self.boot.set(boot_rom, deadline)
        off_s = self._config.power.off_for / 1e9
        self.console.note(f"power off for {off_s:g} s")
        try:
            self.power.set(False, deadline)
            time.sleep(min(off_s, deadline.left()))
            mark, gone = self.console.cut_line(), self._port_gone()
        finally:
            with held_back():
                self.console.note("power on")
                self.power.set(True, own_time(self._config.power))  # no board is left dark
        if not gone:
            return mark
        self.port.close()
        self._take(self._open_when_back(deadline.at_most(PORT_BACK_S)))
        self.console.note(f"serial port is back as {self.port.node}")
        if boot_rom:
            self.start_boot_rom(deadline)
        elif self.reset.present:
            return self.start_application(deadline)
        return mark
