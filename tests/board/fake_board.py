"""A whole board behind a pseudo-terminal: boot ROM or application by its boot line, restarted by reset or power."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable
from pathlib import Path

from rom_peer import FLASH, RomPeer

BUILD = "ab" * 20


class FakeBoard:
    """Takes the place of the emulated bench's lines. `answers` are what its console says to commands.

    link: a name for its port, as udev makes one; with it the port goes and comes with the power, each time as another
    pseudo-terminal, like an adapter that the board feeds. hung: deaf to reset until its power is cycled. on_restart:
    called when the first words after a reset are on the line, before the reset line's driver returns.
    """

    def __init__(self, link: Path | None = None) -> None:
        self._link = link
        self.hung = False
        self.switched: list[bool] = []
        self.rom = RomPeer()
        self.boot = False
        self.held = False
        self.boots_on_go = False
        self.resets: list[str] = []
        self.banner = (
            f"rig-fw variant=zero_copy build={BUILD} boot_id=0000000{{n}} reset=pin identity=ok name=board-1 "
            "mac=02:52:49:47:00:10 ip=10.77.0.10 port=5005 lwip=2.2.1 npu=scripted"
        )
        self.after_boot = ["link up", "ready"]
        self.answers: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.on_restart: Callable[[], None] = lambda: None
        self.on_command: Callable[[str], list[str]] = lambda text: self.answers.get(text, ["error: unknown command"])
        self._in_rom = False
        self._typed = b""
        self._wake_r, self._wake_w = os.pipe()
        self._lock = threading.Lock()
        self._controller = -1
        self.plug_in()

    # --- lines ---

    def set_reset(self, asserted: bool) -> None:
        with self._lock:
            if self.held and not asserted and not self.hung:
                self._restart()
            self.held = asserted

    def set_boot(self, asserted: bool) -> None:
        self.boot = asserted

    def power(self, on: bool) -> None:
        self.switched.append(on)
        if not on:
            self.hung = self._in_rom = False
            if self._link is not None:
                self.unplug()
            return
        if self._link is not None:
            self.plug_in()
        with self._lock:
            self._restart()

    def _restart(self) -> None:
        self._typed = b""
        self._in_rom = self.boot
        self.resets.append("rom" if self.boot else "application")
        if self.boot:
            fresh = RomPeer()
            fresh.flash, fresh.erased, fresh.writes = self.rom.flash, self.rom.erased, self.rom.writes
            self.rom = fresh
        elif self.banner:
            self.say(self.banner.format(n=len(self.resets)), *self.after_boot)
        self.on_restart()

    # --- serial line ---

    def say(self, *lines: str) -> None:
        for line in lines:
            os.write(self._controller, line.encode("latin-1") + b"\r\n")

    def raw(self, data: bytes) -> None:
        os.write(self._controller, data)

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._controller, self._wake_r], [], [])
            if self._wake_r in ready:
                return
            data = os.read(self._controller, 4096)
            with self._lock:
                if self._in_rom:
                    if out := self.rom.feed(data):
                        os.write(self._controller, out)
                    if self.boots_on_go and self.rom.jumped is not None:
                        self._restart()
                else:
                    *whole, self._typed = (self._typed + data).split(b"\n")
                    for text in (line.strip().decode("latin-1") for line in whole):
                        self.asked.append(text)
                        self.say(*self.on_command(text))

    def plug_in(self) -> None:
        """A new pseudo-terminal, under the same link if there is one."""
        self._controller, self._terminal = os.openpty()
        tty.setraw(self._terminal)
        self.node = os.ttyname(self._terminal)
        self.path = str(self._link or self.node)
        if self._link is not None:
            self._link.symlink_to(self.node)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unplug(self) -> None:
        os.write(self._wake_w, b"x")
        self._thread.join()
        os.read(self._wake_r, 1)
        if self._link is not None:
            self._link.unlink()
        ours, self._controller = (self._controller, self._terminal), -1
        for fd in ours:
            os.close(fd)

    def __enter__(self) -> FakeBoard:
        return self

    def __exit__(self, *_: object) -> None:
        if self._controller >= 0:
            self.unplug()
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)

    def flash_at(self, address: int, size: int) -> bytes:
        return bytes(self.rom.flash[address - FLASH : address - FLASH + size])
