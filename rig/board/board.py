"""The board as a run uses it: flash it, give it its identity, boot it, prove who it is, ask it, watch it stay alive.

What the rig cannot do is a BoardError. What the *product* does wrong after a verified flash (it does not boot, it is
not what was flashed, it faults, it restarts unasked) is an Observation, which the check `alive` judges.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from rig.bench import model
from rig.board import events
from rig.board.console import Console, ConsoleSilentError
from rig.board.events import Boot, Fault
from rig.board.flash.flasher import OWNS_PORT, Flasher, FlashLink, ProgressSink, Region, make_flasher
from rig.board.identity import SIZE as IDENTITY_SIZE
from rig.board.identity import IdentityBlock, IdentityError
from rig.board.image import Image
from rig.board.lines import EmulatedBoard, Wiring, enter_bootloader, make_line, released_level, start_application
from rig.board.proof import announces_itself, identity_faults, image_faults
from rig.board.report import BootFailure, FlashMode, FlashReport, Observation, Push
from rig.board.serial_port import SerialPort
from rig.board.telemetry import Telemetry, parse_telemetry
from rig.deadline import Deadline
from rig.errors import BoardError, RigError
from rig.plan.model import Npu

__all__ = ["Board", "BootFailure", "FlashMode", "FlashReport", "Observation", "Push"]


class Board:
    """One board on one bench. Use `Board.open(…)` as a context manager."""

    def __init__(
        self, config: model.Board, peer: str, log: Path, start_ns: int, emulated: EmulatedBoard | None = None
    ) -> None:
        self.config = config
        self._peer = peer
        self._emulated = emulated
        self._port = self._open_port()
        try:
            self.console = Console(self._port, log, start_ns, config.banner)
            self._wire()
        except BaseException:
            self._port.close()
            raise
        self._loader: Flasher | None = None
        self._suspension = contextlib.ExitStack()
        self._lent_mark = 0
        self._proven_flash = False
        self._boot: Boot | None = None
        self._boot_mark: int | None = None
        self._past: list[Observation] = []
        self._expects_banner = True
        self.console.start()

    @classmethod
    def open(
        cls, config: model.Board, *, peer: str, log: Path, start_ns: int, emulated: EmulatedBoard | None = None
    ) -> Board:
        """Open the port and begin to log.

        peer: the Jetson's bench address, part of the identity block. log: board.log, appended to. start_ns:
        CLOCK_MONOTONIC of the run's start. emulated: the emulated bench's lines, for drivers `emulated`.
        """
        return cls(config, peer, log, start_ns, emulated)

    def _open_port(self) -> SerialPort:
        reset, boot = self.config.reset, self.config.boot
        return SerialPort.open(
            self.config.serial,
            dtr=released_level(reset, "dtr") or released_level(boot, "dtr"),
            rts=released_level(reset, "rts") or released_level(boot, "rts"),
        )

    def _wire(self) -> None:
        wiring = Wiring(self._port, self._port.node, self._emulated, self.console.note)
        self._reset = make_line("reset", self.config.reset, wiring)
        self._bootpin = make_line("boot", self.config.boot, wiring)

    def close(self) -> None:
        """Release the boot line as far as the port still allows, stop reading, close the port. Never raises."""
        with contextlib.suppress(RigError):
            if self._loader is not None:
                self._bootpin.set(False, Deadline.after(1.0))
        self._suspension.close()
        self.console.close()
        self._port.close()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- flash -------------------------------------------------------------------------------------------------------

    def flash(
        self, image: Image, mode: FlashMode, deadline: Deadline, progress: ProgressSink = lambda step: None
    ) -> FlashReport:
        """Bring `image` into flash as `mode` says; the board stays in its boot ROM until `reset_and_boot`.

        `if-changed` reads the whole region back and compares; a programmer that cannot read is trusted when the
        running board's banner shows the image's build id. Raises BoardError when flashing or verifying fails.
        """
        began_ns = time.monotonic_ns()
        regions = [Region("image", s.address, s.data, image.path) for s in image.segments]
        self._check_place(image)
        self._expects_banner = self.config.banner is not None or announces_itself(image)

        def report(skipped: bool, verified: bool, written: int = 0, erased: str = "", retries: int = 0) -> FlashReport:
            self._proven_flash = verified
            seconds = (time.monotonic_ns() - began_ns) / 1e9
            self.console.note(
                f"flash {image.path.name}: "
                + (f"skipped ({mode})" if skipped else f"{written} bytes written, {erased}, {retries} retries")
                + f", verified: {'yes' if verified else 'no'}, {seconds:.2f} s"
            )
            return FlashReport(
                mode, skipped, verified, written, erased, retries, seconds, image.size, image.sha256, image.build_id
            )

        if mode == "never":
            return report(skipped=True, verified=False)
        programmer = self.config.flash.driver in OWNS_PORT
        if mode == "if-changed" and programmer and self._runs(image, deadline):
            return report(skipped=True, verified=False)
        with self._in_loader(deadline) as loader:
            if mode == "if-changed" and loader.matches(regions, image.build_id_address, progress, deadline):
                return report(skipped=True, verified=True)
            with self._port_lent():
                done = loader.program(regions, self._reserved("image"), progress, deadline)
        return report(False, done.verified, done.written, done.erased, done.retries)

    def write_weights(
        self, data: bytes, deadline: Deadline, progress: ProgressSink = lambda step: None, path: Path | None = None
    ) -> bool:
        """Bring model weights into their own region; False when they were there already."""
        address = self.config.flash.weights_address
        if address is None:
            raise BoardError("this bench has no weights region", hint="set `flash: {weights_address: …}`")
        return self._ensure(Region("weights", address, data, path), deadline, progress)

    def ensure_identity(self, deadline: Deadline, progress: ProgressSink = lambda step: None) -> bool:
        """Write the identity block where the board's differs from the bench file; True when it was written.

        Does nothing when the bench file says `identity_address: null`. A programmer that cannot read is used only when
        the banner shows another identity.
        """
        address = self.config.flash.identity_address
        if address is None:
            return False
        wanted = IdentityBlock.of(self.config.identity, self._peer)
        if self.config.flash.driver in OWNS_PORT:
            boot = self._boot or self._try_boot(deadline)
            if boot is not None and not identity_faults(boot, self.config.identity):
                return False
        return self._ensure(Region("identity", address, wanted.pack()), deadline, progress)

    def read_identity(self, deadline: Deadline) -> IdentityBlock | str:
        """The block that is in flash now, or why there is none. Needs a flash driver that can read."""
        address = self.config.flash.identity_address
        with self._in_loader(deadline) as loader:
            read = getattr(loader, "read", None)
            if address is None or read is None:
                return "the identity block cannot be read on this bench"
            try:
                return IdentityBlock.parse(read(address, IDENTITY_SIZE, deadline))
            except IdentityError as error:
                return str(error)

    def _ensure(self, region: Region, deadline: Deadline, progress: ProgressSink) -> bool:
        with self._in_loader(deadline) as loader:
            if loader.matches([region], None, progress, deadline):
                return False
            with self._port_lent():
                loader.program([region], self._reserved(region.name), progress, deadline)
        self.console.note(f"{region.name} region written at 0x{region.address:08x}")
        return True

    def _reserved(self, writing: str) -> list[Region]:
        flash = self.config.flash
        places = {"image": flash.image_address, "identity": flash.identity_address, "weights": flash.weights_address}
        return [Region(name, at, b"") for name, at in places.items() if at is not None and name != writing]

    def _check_place(self, image: Image) -> None:
        for kept in self._reserved("image"):
            if image.address <= kept.address < image.end:
                raise BoardError(
                    f"image {image.path} (0x{image.address:08x} to 0x{image.end - 1:08x}) covers the {kept.name} "
                    f"region at 0x{kept.address:08x}",
                    hint=f"a larger image needs another place for it: `flash: {{{kept.name}_address: …}}`, or null",
                )

    @contextlib.contextmanager
    def _in_loader(self, deadline: Deadline) -> Iterator[Flasher]:
        """The connected flasher. One stay in the boot ROM serves all regions until the next boot or the first error."""
        try:
            if self._loader is None:
                self._loader = self._enter_loader(deadline)
            yield self._loader
        except BaseException:
            with contextlib.suppress(RigError):
                self._bootpin.set(False, Deadline.after(1.0))
            with contextlib.suppress(RigError):
                self._leave_loader(discard=True)
            raise

    def _enter_loader(self, deadline: Deadline) -> Flasher:
        if self._boot_mark is not None:
            self._past = list(self.observations())
            self._boot_mark = None
        link = FlashLink(self._port, self._port.node, self.console.note, self.console.feed)
        loader = make_flasher(self.config.flash, link)
        if self.config.flash.driver not in OWNS_PORT:
            self.console.note("enter boot ROM")
            self._suspension.enter_context(self.console.suspended())
            enter_bootloader(self._reset, self._bootpin, deadline)
            loader.connect(deadline)
        self._boot = None
        return loader

    def _leave_loader(self, discard: bool) -> None:
        """Console settings and console reading back, whatever state the board is in."""
        self._loader = None
        try:
            if self.config.flash.driver not in OWNS_PORT:
                self._port.configure(self.config.serial.baud, "none")
                if discard:
                    self._port.discard_input()
        finally:
            self._suspension.close()

    @contextlib.contextmanager
    def _port_lent(self) -> Iterator[None]:
        """Close the port while a programmer of another's owns it."""
        if self.config.flash.driver not in OWNS_PORT:
            yield
            return
        with self.console.suspended():
            self._port.close()
            try:
                yield
            finally:
                self._port = self._open_port()
                self.console.port = self._port
                self._lent_mark = self.console.cut_line()
                self._wire()

    # --- boot and proof ----------------------------------------------------------------------------------------------

    def reset_and_boot(self, deadline: Deadline) -> Boot:
        """Reset into the application and wait for its banner, at most the bench's `boot_budget`.

        Without a reset line the AN3155 Go command starts it. An image without any banner (a foreign one, and no
        `banner:` in the bench file) is not waited for: the Boot then has no fields. Raises BootFailure when the flash
        is proven or a fault was printed, else ConsoleSilentError.
        """
        if self._boot_mark is not None:
            self._past = list(self.observations())
        since = self.console.cut_line()
        if self._loader is not None:
            if not self._reset.present and not self._loader.go(self.config.flash.image_address, deadline):
                # A programmer that resets the board by itself may have done so before this.
                since = self._lent_mark
                self.console.note("no reset line and no Go command: waiting for a banner")
            # After Go the banner may be on its way already.
            self._leave_loader(discard=self._reset.present)
        if self._reset.present:
            self.console.note("reset into the application")
            marks: list[int] = []
            start_application(self._reset, self._bootpin, deadline, lambda: marks.append(self.console.cut_line()))
            since = marks[0]
        self._boot_mark = since
        if not self._expects_banner:
            now = events.Line(since, time.monotonic_ns(), time.time_ns(), "")
            self._boot = Boot(now)
            return self._boot
        until = deadline.at_most(self.config.boot_budget / 1e9)
        try:
            # `reset=software` is a firmware that restarted itself, not the answer to the reset line.
            self._boot = self.console.wait_for(
                "boot banner",
                lambda _, event: event if isinstance(event, Boot) and event.reset != "software" else None,
                until,
                since,
            )
        except ConsoleSilentError as error:
            self._boot = None
            raise self._no_boot(error, since) from error
        return self._boot

    def _no_boot(self, error: ConsoleSilentError, since: int) -> Exception:
        seen = self.console.events(since)
        fault = next((event for event in seen if isinstance(event, Fault)), None)
        if fault is not None:
            detail = f"the board faults before its banner: {fault.line.text}"
        elif self._proven_flash:
            said = self.console.lines(since)
            last = f"the last of {len(said)} lines is `{said[-1].text}`" if said else "not one line on the console"
            detail = f"the board did not boot although its flash was verified: {error.what}; {last}"
        else:
            return ConsoleSilentError(
                error.what,
                seen=error.seen,
                hint="the flash was not verified in this run: flash with `flash: always`, or check power and console",
            )
        return BootFailure(Observation("no-boot", detail, time.monotonic_ns()))

    def _try_boot(self, deadline: Deadline) -> Boot | None:
        try:
            return self.reset_and_boot(deadline)
        except (BootFailure, ConsoleSilentError):
            return None

    def _runs(self, image: Image, deadline: Deadline) -> bool:
        boot = self._try_boot(deadline)
        return boot is not None and image.build_id is not None and boot.build == image.build_id

    def prove_identity(self, image: Image | None = None) -> None:
        """The last banner must show the bench file's identity and, if given, the image's build id.

        Raises BoardError: the rig would measure another board or another firmware.
        """
        if self._boot is None:
            raise BoardError("the board has not booted yet, so nothing proves who it is")
        wrong = identity_faults(self._boot, self.config.identity) if self._boot.fields else []
        if image is not None:
            wrong += image_faults(self._boot, image)
        if wrong:
            raise BoardError(
                f"this is not the board or the firmware of the bench file: {'; '.join(wrong)}",
                seen=self._boot.line.text,
                hint="is this port that of this board? Flash with `flash: always`, the identity block included",
            )

    def wait_ready(self, deadline: Deadline) -> None:
        """Wait until the firmware says that its token service is bound. Raises ConsoleSilentError."""
        self.console.wait_for_event(events.Ready, deadline, self._boot_mark or 0)

    # --- talking to the application ----------------------------------------------------------------------------------

    def configure(self, npu: Npu, deadline: Deadline, push: Push | None = None) -> None:
        """Set the scripted backend and, for push mode, what the next start sentinel sets off."""
        self.console.command(
            f"npu first_us={_whole_us(npu.first_token)} token_us={_whole_us(npu.per_token)} "
            f"chunk={npu.tokens_per_datagram}",
            deadline,
        )
        if push is not None:
            self.console.command(
                f"push every_us={_whole_us(push.every_ns)} count={push.count} tokens={push.tokens}", deadline
            )

    def counters(self, deadline: Deadline) -> dict[str, int]:
        """The firmware's counters by name. Raises BoardError when a line is not `counter <name>=<integer>`."""
        counters = {}
        for line in self.console.command("counters", deadline):
            name, equals, value = line.removeprefix("counter ").partition("=")
            if not line.startswith("counter ") or not equals or not value.isdecimal():
                raise BoardError("the board's counters cannot be read", seen=line)
            counters[name] = int(value)
        return counters

    def telemetry(self, deadline: Deadline) -> Telemetry:
        """Drain the firmware's RAM ring."""
        return parse_telemetry(self.console.command("telemetry", deadline))

    # --- alive -------------------------------------------------------------------------------------------------------

    def observations(self) -> tuple[Observation, ...]:
        """Faults and restarts that nobody asked for, over all boots of this session, in order."""
        found = list(self._past)
        if self._boot_mark is None:
            return tuple(found)
        for event in self.console.events(self._boot_mark):
            if isinstance(event, Fault):
                found.append(Observation("fault", event.line.text, event.line.t_ns))
            elif isinstance(event, Boot) and (self._boot is None or event.line.index != self._boot.line.index):
                found.append(Observation("reboot", f"restarted unasked: {event.line.text}", event.line.t_ns))
        return tuple(found)


def _whole_us(value_ns: int) -> int:
    if value_ns % 1000:
        raise BoardError(
            f"{value_ns} ns is finer than the firmware's clock", hint="give whole microseconds in the plan"
        )
    return value_ns // 1000
