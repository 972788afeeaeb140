"""The emulated bench as the rest of the rig sees it: `open_bench` and what it gives, `serve` and `status`.

A bench that was brought up with `serve` is joined; otherwise `open_bench` starts one that ends with it.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
    PowerLine,
    Serial,
)
from rig.emulation import network
from rig.emulation.client import HolderClient, HolderHost, RequestError
from rig.emulation.impair import Rule, rule_to_json
from rig.emulation.messages import DisconnectedError
from rig.emulation.serial_line import CONSOLE_BAUD
from rig.emulation.sshd import USER
from rig.emulation.start import Launcher, join_bench, start_bench
from rig.emulation.state import BenchState, describe_holder
from rig.errors import BenchError, InternalError
from rig.plan.model import Impairment
from rig.project import FIRMWARE, ROOT

ROM = FIRMWARE / "rom.elf"
MODEL_DIR = ROOT / "models" / "build"

_SETUP_S = 20.0


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

    def __init__(self, state: BenchState, file: BenchFile, client: HolderClient, launcher: Launcher | None) -> None:
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
    client = join_bench(state)
    if client is not None:
        return EmulatedBench(state, file, client, None)
    return _start(state, file, emulation, None)


def _start(state: BenchState, file: BenchFile, emulation: Emulation, listener: socket.socket | None) -> EmulatedBench:
    rules = [rule_of(impairment) for impairment in emulation.impairment]
    client, launcher = start_bench(state, ROM, rules, listener, mirror_copies=emulation.mirror_copies)
    return EmulatedBench(state, file, client, launcher)


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
    client = join_bench(state)
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


# --- the bench model ---------------------------------------------------------------------------------------------


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


def _filled_in(file: BenchFile, state: BenchState, terminal: str) -> Bench:
    emulation = _emulation_of(file)
    host_key = state.host_key.with_suffix(".pub").read_text().split()
    return Bench(
        bench=file.bench,
        profile=file.profile,
        capabilities=file.capabilities,
        uncertainty=file.uncertainty,
        network_ready=file.network_ready,
        nic=file.nic,
        board=Board(
            serial=Serial(port=terminal, baud=CONSOLE_BAUD),
            reset=ControlLine(driver="emulated"),
            boot=ControlLine(driver="emulated"),
            power=PowerLine.model_validate({"driver": "emulated", "off_for": "100 ms"}),
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
        capture=_capture(emulation),
        emulation=emulation,
    )


def _capture(emulation: Emulation) -> CapturePoint:
    interfaces = network.CAPTURE_INTERFACES[emulation.capture]
    if emulation.capture == "tap":
        to_board, from_board = interfaces
        return CapturePoint(point="tap", to_board=to_board, from_board=from_board)
    twice = emulation.mirror_copies > 1
    return CapturePoint(point=emulation.capture, interface=interfaces[0], duplication=twice)
