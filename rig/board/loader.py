"""A stay in the boot ROM, or with a programmer: entered once, used for all regions, left before the application starts.

Whatever happens, the console gets its port, speed and reader back, and the boot line is released.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rig.bench import model
from rig.board.escalation import Step, by_hand, wake
from rig.board.flash.flasher import OWNS_PORT, Flasher, FlashLink, make_flasher
from rig.board.report import BoardSilentError
from rig.board.wires import Wires
from rig.deadline import Deadline
from rig.errors import RigError


class LoaderStay:
    """At most one stay at a time. entering: called before the board is taken out of its application; tell: see wake."""

    def __init__(
        self, config: model.Board, wires: Wires, entering: Callable[[], None], tell: Callable[[str], None]
    ) -> None:
        self._config, self._wires, self._entering, self._tell = config, wires, entering, tell
        self._flasher: Flasher | None = None
        self._suspension = contextlib.ExitStack()
        self._own_rom = config.flash.driver not in OWNS_PORT
        self.written_mark = 0
        """The console's mark after a programmer's last write: it may have restarted the board by itself."""

    @property
    def active(self) -> bool:
        """True while the board may still be in its boot ROM."""
        return self._flasher is not None

    @contextlib.contextmanager
    def flasher(self, deadline: Deadline) -> Iterator[Flasher]:
        """The connected flasher; the stay lasts until `leave`, or until the first error inside."""
        try:
            if self._flasher is None:
                self._flasher = self._enter(deadline)
            yield self._flasher
        except BaseException:
            self._wires.release_boot()
            with contextlib.suppress(RigError):
                self.leave(discard=True)
            raise

    def go(self, address: int, deadline: Deadline) -> bool:
        """Start the program at `address` through the flasher; False where it cannot."""
        return self._flasher is not None and self._flasher.go(address, deadline)

    def leave(self, discard: bool) -> None:
        """Console settings and console reading back, whatever state the board is in."""
        self._flasher = None
        try:
            if self._own_rom:
                self._wires.port.configure(self._config.serial.baud, "none")
                if discard:
                    self._wires.port.discard_input()
        finally:
            self._suspension.close()

    def close(self) -> None:
        """End the stay, as far as the port still allows. Never raises."""
        if self._flasher is not None:
            self._wires.release_boot()
        self._suspension.close()

    def _enter(self, deadline: Deadline) -> Flasher:
        self._entering()
        if not self._own_rom:
            return self._connected(deadline)
        wires = self._wires
        self._suspension.enter_context(wires.console.suspended())
        resets = wires.reset.present
        steps = [Step("a reset" if resets else "no reset (there is no line)", lambda: wires.start_boot_rom(deadline))]
        if wires.power.present:
            steps.append(Step("a power cycle", lambda: self._power_cycle(deadline)))
        try:
            return wake(steps, lambda: self._connected(deadline), deadline, self._tell)
        except BoardSilentError as error:
            error.hint = f"{error.hint}; {by_hand(self._config.power)}" if error.hint else None
            raise

    def _connected(self, deadline: Deadline) -> Flasher:
        wires = self._wires
        link = FlashLink(wires.port, wires.port.node, wires.console.note, wires.console.feed, self._lent)
        flasher = make_flasher(self._config.flash, link)
        flasher.connect(deadline)
        return flasher

    def _power_cycle(self, deadline: Deadline) -> None:
        # At the console's speed, so that what an application says on its way is logged as text.
        self._wires.port.configure(self._config.serial.baud, "none")
        self._wires.power_cycle(True, deadline)

    @contextlib.contextmanager
    def _lent(self, deadline: Deadline, writing: bool) -> Iterator[None]:
        """The port for a programmer, the board in its boot ROM where a boot line can select that."""
        if self._wires.boot.present:
            self._wires.start_boot_rom(deadline)
        with self._wires.lent(deadline):
            yield
        if writing:
            self.written_mark = self._wires.lent_mark
