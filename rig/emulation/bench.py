"""The emulated bench as the rest of the rig sees it: `open_bench` and what it gives, `serve` and `status`.

A bench that was brought up with `serve` is joined; otherwise `open_bench` starts one that ends with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.bench.host import child_environment
from rig.bench.model import (
    Bench,
    BenchFile,
    Board,
    CapturePoint,
    ControlLine,
    Emulation,
    Flash,
    Identity,
    Jetson,
    Serial,
)
from rig.emulation import network
from rig.emulation.client import HolderClient, HolderHost, RequestError
from rig.emulation.holder import Settings
from rig.emulation.impair import Rule, rule_to_json
from rig.emulation.messages import DisconnectedError
from rig.emulation.serial_line import CONSOLE_BAUD
from rig.emulation.sshd import USER
from rig.emulation.state import BenchState, describe_holder
from rig.errors import BenchError, InternalError
from rig.plan.model import Impairment

ROOT = Path(__file__).resolve().parents[2]
ROM = ROOT / "firmware" / "build" / "rom.elf"
MODEL_DIR = ROOT / "models" / "build"

_SETUP_S = 20.0
_END_S = 5.0


class BoardLines:
    """The emulated board's reset, boot and power lines (True: asserted, high, on)."""

    def __init__(self, client: HolderClient) -> None:
        self._client = client

    def set_reset(self, asserted: bool) -> None:
        """Hold the board in reset, or let it start."""
        self._client.do("reset", on=asserted)

    def set_boot(self, high: bool) -> None:
        """BOOT0: high selects the boot ROM at the next start."""
        self._client.do("boot", on=high)

    def power(self, on: bool) -> None:
        """Off loses RAM and link at once and keeps the flash; on starts the board."""
        self._client.do("power", on=on)


class EmulatedBench:
    """An emulated bench in use; a context manager. bench: the model that the controller works with.

    host: programs and sockets on the rig's side of it. lines: the board's reset, boot and power.
    joined: it is somebody else's and goes on after this.
    """

    def __init__(self, state: BenchState, file: BenchFile, client: HolderClient, launcher: _Launcher | None) -> None:
        self._client = client
        self._launcher = launcher
        try:
            terminal = self._hello()
            self.bench: Bench = _filled_in(file, state, terminal)
        except BaseException:
            self.close()
            raise
        self.host = HolderHost(client)
        self.lines = BoardLines(client)
        self.joined = launcher is None

    def __enter__(self) -> EmulatedBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bench; a private one ends with everything in it before this returns."""
        self._client.close()
        if self._launcher is not None:
            self._launcher.end()

    def set_impairment(self, impairments: Sequence[Impairment]) -> None:
        """Let the relay impose these rules, and only these, on frames from now on (random sequences start anew)."""
        self._client.do("impairment", rules=[rule_to_json(rule_of(impairment)) for impairment in impairments])

    def relay_counters(self) -> dict[str, Any]:
        """What the relay did since the bench came up.

        `to-board`, `from-board`: see `impair.Counters`, and frames `in_flight`. copies: to mirror and taps.
        copy_errors, link_down: frames lost to a port that refused them, to a missing link.
        kernel_drops: frames that came faster than the relay read.
        late_max_ns: the latest release against its schedule since the last call.
        """
        counters: dict[str, Any] = self._client.do("counters")["relay"]
        return counters

    def set_link(self, up: bool) -> None:
        """The cable between board and bench: carrier on both ends."""
        self._client.do("link", on=up)

    def status(self) -> dict[str, Any]:
        """Everything that the holder knows about the bench's state."""
        answer = self._client.do("status")
        return {key: value for key, value in answer.items() if key != "ok"}

    def wait_ended(self) -> None:
        """Block until the bench is gone, from whatever cause."""
        if self._launcher is not None:
            self._launcher.wait()

    def _hello(self) -> str:
        try:
            answer, _ = self._client.ask("hello", patience_s=_SETUP_S)
        except RequestError as error:
            seen = error.message.get("seen") or (self._launcher.last_words() if self._launcher else None)
            raise InternalError(str(error), seen=seen, hint=error.message.get("hint") or None) from error
        except DisconnectedError as error:
            raise InternalError(
                "the emulated bench ended while it came up",
                seen=self._launcher.last_words() if self._launcher else None,
            ) from error
        terminal: str = answer["terminal"]
        return terminal


def open_bench(file: BenchFile, *, instance: str | None = None) -> EmulatedBench:
    """Join the bench of this name if one was brought up, else start a private one that ends with the caller.

    instance: tells several benches of one file apart. A private bench must be opened from the main thread: the kernel
    ends it with the thread that started it. Ready when this returns: sshd accepts, the board runs, the relay forwards.
    Raises BenchError when another process has the bench or the file does not fit, InternalError when it cannot come up.
    """
    emulation = _emulation_of(file)
    state = BenchState.of(file.bench, instance)
    client = _join(state)
    if client is not None:
        return EmulatedBench(state, file, client, None)
    return _start(state, file, emulation, listener=None)


def serve(
    file: BenchFile, *, instance: str | None = None, on_ready: Callable[[EmulatedBench], None] | None = None
) -> None:
    """Bring the bench up for others to join, until KeyboardInterrupt (which this takes as the wish to stop).

    Raises BenchError when it is up already or in use, InternalError when it cannot come up or ends by itself.
    """
    emulation = _emulation_of(file)
    state = BenchState.of(file.bench, instance)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with contextlib.suppress(KeyboardInterrupt):
            with _start(state, file, emulation, listener) as bench:
                listener.close()
                if on_ready is not None:
                    on_ready(bench)
                bench.wait_ended()
                raise InternalError("the emulated bench ended by itself", hint="run `rig bench up` again")


@dataclass(frozen=True)
class BenchStatus:
    """state: `up` (joinable), `in-use` (a controller's private bench) or `down`. details: as the holder tells."""

    name: str
    state: str
    holder: str
    details: dict[str, Any]


def status(file: BenchFile, *, instance: str | None = None) -> BenchStatus:
    """What is known of this bench, without starting or changing it."""
    _emulation_of(file)
    state = BenchState.of(file.bench, instance)
    held_by = state.lock_holder()
    client = _join(state)
    if client is not None:
        try:
            return BenchStatus(state.name, "up", describe_holder(held_by), client.do("status"))
        finally:
            client.close()
    if held_by is not None:
        return BenchStatus(state.name, "in-use", describe_holder(held_by), {})
    return BenchStatus(state.name, "down", "", {})


def rule_of(impairment: Impairment) -> Rule:
    """A plan's or bench file's impairment in the relay's own numbers."""
    return Rule(
        direction=impairment.direction,
        delay_ns=impairment.delay,
        jitter_ns=impairment.jitter,
        loss=float(impairment.loss or 0),
        duplicate=float(impairment.duplicate or 0),
        reorder=float(impairment.reorder or 0),
        rate_bps=impairment.rate or 0,
        seed=impairment.seed,
        select={str(key): value for key, value in impairment.select.items()},
    )


# --- starting and joining ---------------------------------------------------------------------------------------------


def _emulation_of(file: BenchFile) -> Emulation:
    if file.emulation is None:
        raise BenchError(
            f"bench {file.bench!r} is not an emulated one: its file has no `emulation` section",
            hint="name an emulated bench with --bench, such as benches/emulated.yaml",
        )
    given = [key for key in ("board", "jetson", "capture") if getattr(file, key) is not None]
    if given:
        raise BenchError(
            f"bench {file.bench!r} is emulated and must not describe its own {', '.join(given)}: the emulation does",
            hint=f"remove {', '.join(f'`{key}:`' for key in given)} from the bench file",
        )
    return file.emulation


def _join(state: BenchState) -> HolderClient | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(state.control_address)
    except OSError:
        sock.close()
        return None
    uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    if uid != os.getuid():  # anyone can take an abstract address
        sock.close()
        raise BenchError(f"the address of bench {state.name!r} is taken by a process of user id {uid}")
    return HolderClient(sock)


def _start(state: BenchState, file: BenchFile, emulation: Emulation, listener: socket.socket | None) -> EmulatedBench:
    if threading.current_thread() is not threading.main_thread():
        raise InternalError(
            "an emulated bench was to be started from a thread that is not the main one",
            hint="open it from the main thread: the kernel ends it with the thread that started it",
        )
    if not ROM.exists():
        raise InternalError(
            f"the boot ROM of the emulated board is missing: {ROM}", hint="run ./bench once: it builds it"
        )
    lock_fd = state.lock()
    try:
        state.make_keys()
        if listener is not None:
            listener.bind(state.control_address)
            listener.listen()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = Settings(
                name=state.name,
                state=str(state.folder),
                rom=str(ROM),
                uid=os.getuid(),
                gid=os.getgid(),
                controller_pid=os.getpid(),
                control_fd=theirs.fileno(),
                lock_fd=lock_fd,
                listen_fd=-1 if listener is None else listener.fileno(),
                rules=[rule_to_json(rule_of(impairment)) for impairment in emulation.impairment],
            )
            launcher = _Launcher(settings)
    finally:
        os.close(lock_fd)  # the bench holds the lock from here on
    return EmulatedBench(state, file, HolderClient(ours), launcher)


class _Launcher:
    """The process that made the bench's namespaces; gone when the bench is."""

    def __init__(self, settings: Settings) -> None:
        self._log = os.memfd_create("rig-bench-log")
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")), settings.to_json()]
        if sys.dont_write_bytecode:
            command.insert(1, "-B")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=child_environment(),
            pass_fds=settings.fds(),
            start_new_session=True,  # Ctrl-C in the terminal is the controller's business
        )

    def end(self) -> None:
        """Wait until the bench, whose control socket is closed, is gone; kill it if that takes too long."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def wait(self) -> None:
        self._process.wait()

    def last_words(self) -> str | None:
        text = os.pread(self._log, 65_536, 0).decode(errors="replace").strip()
        return text.rpartition("\n")[2] or None


def _filled_in(file: BenchFile, state: BenchState, terminal: str) -> Bench:
    emulation = _emulation_of(file)
    host_key = state.host_key.with_suffix(".pub").read_text().split()
    return Bench(
        bench=file.bench,
        profile=file.profile,
        capabilities=file.capabilities,
        uncertainty=file.uncertainty,
        network_ready=file.network_ready,
        board=Board(
            serial=Serial(port=terminal, baud=CONSOLE_BAUD),
            reset=ControlLine(driver="emulated"),
            boot=ControlLine(driver="emulated"),
            flash=Flash(baud=emulation.flash_baud, parity="none"),
            identity=Identity(
                name=file.bench[:16], mac=network.BOARD_MAC, address=network.BOARD_ADDRESS, port=network.BOARD_PORT
            ),
        ),
        jetson=Jetson(
            host=network.JETSON_MANAGEMENT_ADDRESS,
            port=network.JETSON_SSH_PORT,
            user=USER,
            host_key=" ".join(host_key[:2]),
            key=str(state.user_key),
            python=sys.executable,
            bench_address=network.JETSON_ADDRESS,
            model_dir=str(MODEL_DIR),
        ),
        capture=CapturePoint(point=emulation.capture, interface=network.CAPTURE_INTERFACES[emulation.capture]),
        emulation=emulation,
    )
