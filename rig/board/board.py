"""The board as a run uses it: flash it, give it its identity, boot it, prove who it is, ask it, watch it stay alive.

What the rig cannot do is a BoardError. What the *product* does wrong after a verified flash (it does not boot, it is
not what was flashed, it faults, it restarts unasked) is an Observation, which the check `alive` judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rig.bench import model
from rig.board import application, events
from rig.board.console import ConsoleSilentError
from rig.board.escalation import Step, by_hand, wake
from rig.board.events import Boot, Fault
from rig.board.flash.flasher import ProgressSink, Region, can_read
from rig.board.identity import SIZE as IDENTITY_SIZE
from rig.board.identity import IdentityBlock, IdentityError
from rig.board.image import Image
from rig.board.lines import EmulatedBoard
from rig.board.loader import LoaderStay
from rig.board.proof import announces_itself, identity_faults, image_faults, image_proof
from rig.board.report import BoardSilentError, BootFailure, FlashMode, FlashReport, Observation, Push
from rig.board.telemetry import Telemetry, parse_telemetry
from rig.board.wires import Wires
from rig.deadline import Deadline
from rig.errors import BoardError
from rig.plan.model import Npu

__all__ = ["Board", "BootFailure", "FlashMode", "FlashReport", "Observation", "Push"]


class Board:
    """One board on one bench. Use `Board.open(…)` as a context manager."""

    def __init__(
        self, config: model.Board, peer: str, log: Path, start_ns: int, emulated: EmulatedBoard | None = None
    ) -> None:
        self.config = config
        self._peer = peer
        self._wires = Wires(config, log, start_ns, emulated)
        self.console = self._wires.console
        self._escalations: list[str] = []
        self._loader = LoaderStay(config, self._wires, self._end_boot, self._escalated)
        self._proven_flash = False
        self._boot: Boot | None = None
        self._boot_mark: int | None = None
        self._past: list[Observation] = []
        self._announces_itself = True
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

    @property
    def is_ours(self) -> bool:
        """True when it runs firmware of this project, which has a console to ask. Known once `flash` was called."""
        return self.config.banner is None and self._announces_itself

    def close(self) -> None:
        """Release the boot line as far as the port still allows, stop reading, close the port. Never raises."""
        self._loader.close()
        self._wires.close()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def escalation(self) -> str:
        """What a silent board needed since the last call, as the end of a phase's note; empty if it was not silent."""
        text = "".join(f"; {step}" for step in self._escalations)
        self._escalations.clear()
        return text

    def _escalated(self, text: str) -> None:
        self._escalations.append(text)
        self.console.note(text)

    # --- flash -------------------------------------------------------------------------------------------------------

    def flash(
        self, image: Image, mode: FlashMode, deadline: Deadline, progress: ProgressSink = lambda step: None
    ) -> FlashReport:
        """Bring `image` into flash as `mode` says; the board stays in its boot ROM until `reset_and_boot`.

        `if-changed` reads the whole region back and compares; a programmer that cannot read is trusted when the
        running board's banner shows the image's build. Raises BoardError when flashing or verifying fails.
        """
        began_ns = time.monotonic_ns()
        regions = [Region("image", s.address, s.data, image.path) for s in image.segments]
        self._check_place(image)
        self._announces_itself = announces_itself(image)

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
        if mode == "if-changed" and not can_read(self.config.flash) and self._runs(image, deadline):
            return report(skipped=True, verified=False)
        with self._loader.flasher(deadline) as flasher:
            if mode == "if-changed" and flasher.matches(regions, image.build_id_address, progress, deadline):
                return report(skipped=True, verified=True)
            done = flasher.program(regions, self._reserved("image"), progress, deadline)
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

        Does nothing when the bench file says `identity_address: null`, nor for an image that announces itself neither
        as this project's nor by `banner:`: it would not read the block, and may keep something else there. A programmer
        that cannot read is used only when the banner shows another identity.
        """
        address = self.config.flash.identity_address
        if address is None:
            return False
        if self.config.banner is None and not self._announces_itself:
            self.console.note("identity block left alone: the image is not known to read it")
            return False
        wanted = IdentityBlock.of(self.config.identity, self._peer)
        if not can_read(self.config.flash):
            boot = self._boot or self._try_boot(deadline)
            if boot is not None and not identity_faults(boot, self.config.identity):
                return False
        return self._ensure(Region("identity", address, wanted.pack()), deadline, progress)

    def read_identity(self, deadline: Deadline) -> IdentityBlock | str:
        """The block that is in flash now, or why there is none. Needs a flash driver that can read."""
        address = self.config.flash.identity_address
        if address is None or not can_read(self.config.flash):
            return "the identity block cannot be read on this bench"
        with self._loader.flasher(deadline) as flasher:
            try:
                return IdentityBlock.parse(flasher.read(address, IDENTITY_SIZE, deadline))
            except IdentityError as error:
                return str(error)

    def _ensure(self, region: Region, deadline: Deadline, progress: ProgressSink) -> bool:
        with self._loader.flasher(deadline) as flasher:
            if flasher.matches([region], None, progress, deadline):
                return False
            flasher.program([region], self._reserved(region.name), progress, deadline)
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

    def _end_boot(self) -> None:
        """The application is about to be stopped; what was found while it ran is kept."""
        if self._boot_mark is not None:
            self._past = list(self.observations())
        self._boot, self._boot_mark = None, None

    # --- boot and proof ----------------------------------------------------------------------------------------------

    def reset_and_boot(self, deadline: Deadline, tell: Callable[[str], None] = lambda text: None) -> Boot:
        """Start the application and wait for its banner, at most the bench's `boot_budget` after each step.

        The steps: reset (without a reset line the AN3155 Go command), then, for a board that stays silent, a power
        cycle. tell: takes a sentence for each step beyond the first. An image without any banner (a foreign one, and no
        `banner:` in the bench file) is not waited for: the Boot then has no fields. Raises BootFailure when the flash
        is proven or a fault was printed, else BoardSilentError.
        """

        def escalated(text: str) -> None:
            self._escalated(text)
            tell(text)

        steps = [Step("a reset" if self._wires.reset.present else "the start", lambda: self._start(deadline))]
        if self._wires.power.present:
            steps.append(Step("a power cycle", lambda: self._power_cycle(deadline)))
        try:
            return wake(steps, lambda: self._listen(deadline), deadline, escalated)
        except BoardSilentError as error:
            raise self._no_boot(error) from error

    def _try_boot(self, deadline: Deadline) -> Boot | None:
        try:
            self._start(deadline)
            return self._listen(deadline)
        except (BootFailure, BoardSilentError):
            return None

    def _start(self, deadline: Deadline) -> None:
        wires = self._wires
        self._end_boot()
        since = self.console.cut_line()
        if self._loader.active:
            if not wires.reset.present and not self._loader.go(self.config.flash.image_address, deadline):
                # A programmer that resets the board by itself may have done so before this.
                since = self._loader.written_mark
                self.console.note("no reset line and no Go command: waiting for a banner")
            # After Go the banner may be on its way already.
            self._loader.leave(discard=wires.reset.present)
        self._boot_mark = wires.start_application(deadline) if wires.reset.present else since

    def _power_cycle(self, deadline: Deadline) -> None:
        self._end_boot()
        self._boot_mark = self._wires.power_cycle(False, deadline)

    def _listen(self, deadline: Deadline) -> Boot:
        since = self._boot_mark or 0
        if self.config.banner is None and not self._announces_itself:
            self._boot = Boot(events.Line(since, time.monotonic_ns(), time.time_ns(), ""))
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
        except ConsoleSilentError:
            fault = next((event for event in self.console.events(since) if isinstance(event, Fault)), None)
            if fault is None and until is deadline:
                raise BoardError(
                    f"the board had less than its `boot_budget` of {self.config.boot_budget / 1e9:g} s to boot, since "
                    f"the {deadline.budget_s:g} s of the phase were over",
                    seen=self.console.last_line(),
                    hint="board.log shows what took the time before it",
                ) from None
            if fault is None:
                raise
            detail = f"the board faults before its banner: {fault.line.text}"
            raise BootFailure(Observation("no-boot", detail, time.monotonic_ns())) from None
        return self._boot

    def _no_boot(self, error: BoardSilentError) -> Exception:
        if not self._proven_flash:
            return ConsoleSilentError(
                error.what,
                seen=error.seen,
                hint="the flash was not verified in this run: flash with `flash: always`, or check power and console; "
                + by_hand(self.config.power),
            )
        said = self.console.lines(self._boot_mark or 0)
        last = f"the last of {len(said)} lines is `{said[-1].text}`" if said else "not one line on the console"
        detail = f"the board did not boot although its flash was verified: {error.what}; {last}"
        return BootFailure(Observation("no-boot", detail, time.monotonic_ns()))

    def _runs(self, image: Image, deadline: Deadline) -> bool:
        boot = self._try_boot(deadline)
        return boot is not None and image_proof(boot, image, read_back=False) is not None

    def prove_identity(self, image: Image | None = None) -> str:
        """The last banner must show the bench file's identity and, if given, `image` must be proven to run.

        Returns what proves the image, in words (empty without one). Raises BoardError: the rig would measure another
        board or another firmware, or cannot tell which.
        """
        if self._boot is None:
            raise BoardError("the board has not booted yet, so nothing proves who it is")
        wrong = identity_faults(self._boot, self.config.identity) if self._boot.fields else []
        if image is not None and self.config.banner is None:
            wrong += image_faults(self._boot, image)
        if wrong:
            raise BoardError(
                f"this is not the board or the firmware of the bench file: {'; '.join(wrong)}",
                seen=self._boot.line.text,
                hint="is this port that of this board? Flash with `flash: always`, the identity block included",
            )
        if image is None:
            return ""
        proof = image_proof(self._boot, image, self._proven_flash)
        if proof is None:
            shown = f"its banner shows build {self._boot.build}" if self._boot.build else "no banner shows its build"
            raise BoardError(
                f"the image {image.path.name} cannot be identified on the board: {shown}, and the flash was not read "
                "back in this run",
                seen=self._boot.line.text or None,
                hint="flash with `if-changed` through a driver that reads back (an3155, or command with `read`), or "
                "give `banner:` a group `(?P<build>…)` that shows the image's build id or a version text of the image",
            )
        return proof

    def wait_ready(self, deadline: Deadline) -> None:
        """Wait until the firmware says that its token service is bound. Raises ConsoleSilentError."""
        self.console.wait_for_event(events.Ready, deadline, self._boot_mark or 0)

    # --- talking to the application ----------------------------------------------------------------------------------

    def configure(self, npu: Npu, deadline: Deadline, push: Push | None = None) -> None:
        """Set the scripted backend and, for push mode, what the next start sentinel sets off."""
        application.configure(self.console, npu, deadline, push)

    def counters(self, deadline: Deadline) -> dict[str, int]:
        """The firmware's counters by name. Raises BoardError when a line is not `counter <name>=<integer>`."""
        return application.counters(self.console, deadline)

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
