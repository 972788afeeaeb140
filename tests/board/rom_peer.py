"""An STM32 boot ROM's side of AN3155 for tests, written from the protocol's text and sharing nothing with rig.board.

One coroutine: it is sent each received byte and keeps its answers in `out`. Faults are set by attributes.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Generator

FLASH = 0x0800_0000
SILENCE_NS = 50_000_000
"""How long a read of a silent LoopLink takes."""
F7_SECTORS = [32 << 10] * 4 + [128 << 10] + [256 << 10] * 3


class RomPeer:
    """NOR flash of an STM32F74x behind a USART boot ROM."""

    def __init__(self, synced: bool = False, product: int = 0x449) -> None:
        self.flash = bytearray(b"\x00" * sum(F7_SECTORS))  # what an old image left: nothing erased
        self.product = product
        self.commands = [0x00, 0x01, 0x02, 0x11, 0x21, 0x31, 0x44]
        self.out = bytearray()
        self.received = 0
        self.erased: list[int] = []
        self.writes: list[tuple[int, int]] = []
        self.jumped: int | None = None
        # --- faults ---
        self.drop_rx: set[int] = set()  # indexes of received bytes that get lost
        self.flip_rx: dict[int, int] = {}  # index: bit mask
        self.lose_ack_of_write: set[int] = set()  # block ordinals whose final ACK never leaves
        self.nack_write_at: set[int] = set()  # addresses whose programming always fails
        self.flip_read_once: dict[int, int] = {}  # address: bit mask, at the next read of it
        self.stuck_bits: dict[int, int] = {}  # address: bits that cannot be cleared
        self.dead_after: int | None = None  # received bytes after which it never answers
        self.read_protected = False
        self.nack_first_init = False  # ROMs that answer NACK to a single 0x7F in the command loop
        self._run = self._main(synced)
        next(self._run)

    def feed(self, data: bytes) -> bytes:
        for byte in data:
            index = self.received
            self.received += 1
            if index in self.drop_rx or (self.dead_after is not None and index >= self.dead_after):
                continue
            self._run.send(byte ^ self.flip_rx.get(index, 0))
        out, self.out = bytes(self.out), bytearray()
        return out

    def _ack(self, data: bytes = b"") -> None:
        self.out += b"\x79" + data

    def _nack(self) -> None:
        self.out += b"\x1f"

    def _main(self, synced: bool) -> Generator[None, int, None]:
        while not synced:
            if (yield) == 0x7F:
                self._ack()
                synced = True
        while True:
            code = yield
            if code == 0x7F and self.nack_first_init:
                self._nack()
                continue
            complement = yield
            if code ^ complement != 0xFF or code not in self.commands:
                self._nack()
            elif code == 0x00:
                self._ack(bytes([len(self.commands), 0x31, *self.commands]) + b"\x79")
            elif code == 0x01:
                self._ack(b"\x31\x00\x00\x79")
            elif code == 0x02:
                self._ack(bytes([1, self.product >> 8, self.product & 0xFF]) + b"\x79")
            elif self.read_protected and code in (0x11, 0x21, 0x31):
                self._nack()
            else:
                self._ack()
                yield from {0x11: self._read, 0x21: self._go, 0x31: self._write, 0x44: self._erase, 0x43: self._erase8}[
                    code
                ]()

    def _take(self, count: int) -> Generator[None, int, bytes]:
        taken = bytearray()
        for _ in range(count):
            taken.append((yield))
        return bytes(taken)

    def _address(self) -> Generator[None, int, int | None]:
        raw = yield from self._take(5)
        address = int.from_bytes(raw[:4], "big")
        good = raw[0] ^ raw[1] ^ raw[2] ^ raw[3] == raw[4] and 0 <= address - FLASH < len(self.flash)
        if not good:
            self._nack()
            return None
        self._ack()
        return address

    def _read(self) -> Generator[None, int, None]:
        if (address := (yield from self._address())) is None:
            return
        count, complement = yield from self._take(2)
        if count ^ complement != 0xFF:
            self._nack()
            return
        data = bytearray(self.flash[address - FLASH : address - FLASH + count + 1])
        for at in [a for a in self.flip_read_once if address <= a <= address + count]:
            data[at - address] ^= self.flip_read_once.pop(at)
        self._ack(bytes(data))

    def _write(self) -> Generator[None, int, None]:
        if (address := (yield from self._address())) is None:
            return
        count = yield
        body = yield from self._take(count + 2)
        check = count
        for byte in body[:-1]:
            check ^= byte
        if check != body[-1] or address in self.nack_write_at:
            self._nack()
            return
        for offset, byte in enumerate(body[:-1]):
            at = address - FLASH + offset
            self.flash[at] &= byte | self.stuck_bits.get(address + offset, 0)
        self.writes.append((address, count + 1))
        if len(self.writes) - 1 not in self.lose_ack_of_write:
            self._ack()

    def _go(self) -> Generator[None, int, None]:
        self.jumped = yield from self._address()

    def _erase(self) -> Generator[None, int, None]:
        head = yield from self._take(2)
        count = int.from_bytes(head, "big")
        if count >= 0xFFF0:
            check = yield
            if count != 0xFFFF or check != 0:
                self._nack()
                return
            pages = list(range(len(F7_SECTORS)))
        else:
            body = yield from self._take(2 * (count + 1) + 1)
            check = head[0] ^ head[1]
            for byte in body[:-1]:
                check ^= byte
            pages = [int.from_bytes(body[i : i + 2], "big") for i in range(0, 2 * (count + 1), 2)]
            if check != body[-1] or any(page >= len(F7_SECTORS) for page in pages):
                self._nack()
                return
        self._blank(pages)

    def _erase8(self) -> Generator[None, int, None]:
        count = yield
        body = yield from self._take(count + 2 if count != 0xFF else 1)
        self._blank(list(range(len(F7_SECTORS))) if count == 0xFF else list(body[:-1]))

    def _blank(self, pages: list[int]) -> None:
        for page in pages:
            start = sum(F7_SECTORS[:page])
            self.flash[start : start + F7_SECTORS[page]] = b"\xff" * F7_SECTORS[page]
        self.erased += pages
        self._ack()


class LineClock:
    """A monotonic clock that stands still but for what a silent line is waited for: no busy host is ever late."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


class LoopLink:
    """A peer behind function calls. `chunk`: most bytes that one read gives; `pending`: bytes already on the line."""

    def __init__(self, peer: RomPeer, clock: LineClock, chunk: int = 1 << 16, pending: bytes = b"") -> None:
        self.peer, self._clock, self._chunk, self._pending = peer, clock, chunk, bytearray(pending)
        self.settings: tuple[int, str] | None = None

    def write(self, data: bytes) -> None:
        self._pending += self.peer.feed(data)

    def read(self, size: int) -> bytes:
        if not self._pending:
            self._clock.now_ns += SILENCE_NS
            return b""
        count = min(size, self._chunk)
        data = bytes(self._pending[:count])
        del self._pending[:count]
        return data

    def configure(self, baud: int, parity: str) -> None:
        self.settings = (baud, parity)


class PtyPeer:
    """A peer behind a real pseudo-terminal, in a thread; for the port, and for foreign host tools."""

    def __init__(self, peer: RomPeer, greeting: bytes = b"") -> None:
        import tty

        self.peer = peer
        self._controller, self._terminal = os.openpty()
        tty.setraw(self._terminal)
        self.path = os.ttyname(self._terminal)
        self._wake_r, self._wake_w = os.pipe()
        if greeting:
            os.write(self._controller, greeting)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._controller, self._wake_r], [], [])
            if self._wake_r in ready:
                return
            if out := self.peer.feed(os.read(self._controller, 4096)):
                os.write(self._controller, out)

    def __enter__(self) -> PtyPeer:
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._wake_w, b"x")
        self._thread.join()
        for fd in (self._controller, self._terminal, self._wake_r, self._wake_w):
            os.close(fd)
