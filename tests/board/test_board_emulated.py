"""The board room against the real boot ROM and firmware on the emulated bench."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.bench.model import BenchFile
from rig.board.board import Board
from rig.board.console import CommandRefusedError
from rig.board.identity import IdentityBlock
from rig.board.image import load_image
from rig.board.report import BootFailure
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench, open_bench
from rig.errors import BoardError
from rig.plan.model import Npu

BUILD = Path(__file__).parents[2] / "firmware" / "build"

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not (BUILD / "zero_copy" / "app.bin").exists(), reason="the firmware is not built"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedBench]:
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    file = BenchFile.model_validate(
        {"bench": "board-test", "profile": "emulated", "uncertainty": {"declared": "1 ms"}, "emulation": {}}
    )
    with open_bench(file, instance=f"board-{os.getpid()}") as bench:
        yield bench
    patch.undo()


@pytest.fixture
def board(bench: EmulatedBench, tmp_path: Path) -> Iterator[Board]:
    jetson = bench.bench.jetson
    with Board.open(
        bench.bench.board,
        peer=jetson.bench_address,
        log=tmp_path / "board.log",
        start_ns=time.monotonic_ns(),
        emulated=bench.lines,
    ) as board:
        yield board


def soon() -> Deadline:
    return Deadline.after(30)


def test_flash_boot_identity_and_counters_then_another_variant(board: Board, bench: EmulatedBench) -> None:
    image = load_image(BUILD / "zero_copy" / "app.bin", board.config.flash.image_address)
    report = board.flash(image, "always", soon())
    assert (report.skipped, report.verified) == (False, True)
    board.ensure_identity(soon())
    boot = board.reset_and_boot(soon())
    assert boot.build == image.build_id
    assert boot.fields["identity"] == "ok"
    assert boot.reset in ("pin", "cold")
    board.prove_identity(image)
    board.wait_ready(soon())
    board.configure(Npu.model_validate({"first_token": "1 ms", "per_token": "10 us"}), soon())
    assert board.counters(soon())["rx_requests"] == 0
    assert board.telemetry(soon()).unreadable == ()
    with pytest.raises(CommandRefusedError):
        board.console.command("no such command", soon())

    elf = load_image(image.path.with_suffix(".elf"), board.config.flash.image_address)
    assert board.flash(elf, "if-changed", soon()).skipped, "the ELF is the same image"
    assert not board.ensure_identity(soon())

    other = load_image(BUILD / "copy" / "app.bin", board.config.flash.image_address)
    assert other.build_id != image.build_id
    assert not board.flash(other, "if-changed", soon()).skipped
    block = board.read_identity(soon())
    assert isinstance(block, IdentityBlock)
    assert block.name == bench.bench.board.identity.name, "the identity outlives an image"
    boot = board.reset_and_boot(soon())
    assert boot.build == other.build_id
    with pytest.raises(BoardError, match="it runs build"):
        board.prove_identity(image)
    assert board.observations() == ()


def test_image_that_cannot_run_fails_to_boot_after_a_verified_flash(board: Board, tmp_path: Path) -> None:
    good = load_image(BUILD / "copy" / "app.bin", 0x0800_0000)
    # The vector table points into the image, where endless loops (b .) have replaced all code.
    (tmp_path / "dead.bin").write_bytes(good.flat[:0x400] + b"\xfe\xe7" * 0x800 + b"rig-fw ")
    board.flash(load_image(tmp_path / "dead.bin", 0x0800_0000), "always", soon())
    board.config = board.config.model_copy(update={"boot_budget": 1_000_000_000})
    with pytest.raises(BootFailure) as caught:
        board.reset_and_boot(soon())
    assert caught.value.observation.kind == "no-boot"
