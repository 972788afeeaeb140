"""The board room behind other people's tools, on the emulated bench: a third-party programmer, an RFC 2217 server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from rfc2217_bridge import Bridge

from rig.bench import model
from rig.bench.model import BenchFile
from rig.board.board import Board
from rig.board.identity import IdentityBlock
from rig.board.image import load_image
from rig.board.report import BootFailure
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench, open_bench
from rig.errors import BoardError

T = TypeVar("T")
BUILD = Path(__file__).parents[2] / "firmware" / "build"

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not (BUILD / "zero_copy" / "app.bin").exists(), reason="the firmware is not built"),
]

STM32FLASH = {
    "driver": "command",
    "command": {
        "command": [
            "stm32flash",
            "-m",
            "8n1",
            "-b",
            "921600",
            "-w",
            "{image}",
            "-v",
            "-S",
            "{address}:{size}",
            "{port}",
        ]
    },
    "read": {
        "command": ["stm32flash", "-m", "8n1", "-b", "921600", "-r", "{image}", "-S", "{address}:{size}", "{port}"]
    },
}
needs_stm32flash = pytest.mark.skipif(shutil.which("stm32flash") is None, reason="stm32flash is not installed")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedBench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        file = BenchFile.model_validate(
            {"bench": "tools-test", "profile": "emulated", "uncertainty": {"declared": "1 ms"}, "emulation": {}}
        )
        with open_bench(file, instance=f"tools-{os.getpid()}") as bench:
            yield bench


@contextlib.contextmanager
def opened(bench: EmulatedBench, log: Path, **settings: object) -> Iterator[Board]:
    """The emulated board with some of its settings replaced, as another bench file would describe it."""
    plain = bench.bench.board
    lines = {name: {"driver": "emulated"} for name in ("reset", "boot")}
    described = {
        "serial": {"port": plain.serial.port},
        **lines,
        "power": {"driver": "emulated", "off_for": "50 ms"},
        "flash": {"baud": 921_600, "parity": "none"},
        "identity": plain.identity.model_dump(),
    }
    config = model.Board.model_validate(described | settings)
    peer, now = bench.bench.jetson.bench_address, time.monotonic_ns()
    with Board.open(config, peer=peer, log=log, start_ns=now, emulated=bench.lines) as board:
        yield board


def soon() -> Deadline:
    return Deadline.after(60)


def patiently(call: Callable[[], T]) -> T:
    """stm32flash tries nothing twice: once the emulated board is late on a busy host, it is called again."""
    for _ in range(4):
        try:
            return call()
        except BoardError as error:
            if "`stm32flash` failed" not in error.what:
                raise
    return call()


@needs_stm32flash
def test_third_party_programmer_flashes_verifies_and_writes_the_identity(bench: EmulatedBench, tmp_path: Path) -> None:
    log = tmp_path / "board.log"
    with opened(bench, log, flash=STM32FLASH) as board:
        image = load_image(BUILD / "zero_copy" / "app.bin", board.config.flash.image_address)
        report = patiently(lambda: board.flash(image, "always", soon()))
        assert (report.skipped, report.verified) == (False, True)
        assert patiently(lambda: board.ensure_identity(soon()))
        boot = board.reset_and_boot(soon())
        assert (boot.build, boot.fields["identity"]) == (image.build_id, "ok")
        assert board.prove_identity(image) == f"build {image.build_id} in its banner"
        board.wait_ready(soon())
        assert "tx_answers" in board.counters(soon())

        other = load_image(BUILD / "copy" / "app.bin", board.config.flash.image_address)
        changed = patiently(lambda: board.flash(other, "if-changed", soon()))
        assert not changed.skipped, "another image is told by reading back"
        assert patiently(lambda: board.flash(other, "if-changed", soon())).skipped
        block = patiently(lambda: board.read_identity(soon()))
        assert isinstance(block, IdentityBlock), "it outlives an image"
        assert block.name == board.config.identity.name
        assert board.reset_and_boot(soon()).build == other.build_id
        assert board.observations() == ()
    text = log.read_text()
    assert "# rig: run stm32flash -m 8n1 -b 921600 -w " in text
    assert "# rig: | Device ID    : 0x0449 (STM32F74xxx/75xxx)" in text


# The vector table points into the image, where endless loops (b .) have replaced all code; or beyond what is left of
# it, into erased flash, where the core locks up.
@needs_stm32flash
@pytest.mark.parametrize("loops", [0x800, 0x100], ids=["loops", "locks up"])
def test_third_party_programmer_whose_image_does_not_boot_is_the_products_after_the_escalation(
    bench: EmulatedBench, tmp_path: Path, loops: int
) -> None:
    good = load_image(BUILD / "copy" / "app.bin", 0x0800_0000)
    (tmp_path / "dead.bin").write_bytes(good.flat[:0x400] + b"\xfe\xe7" * loops + b"rig-fw ")
    with opened(bench, tmp_path / "board.log", flash=STM32FLASH, boot_budget="500 ms") as board:
        dead = load_image(tmp_path / "dead.bin", 0x0800_0000)
        assert patiently(lambda: board.flash(dead, "always", soon())).verified
        with pytest.raises(BootFailure, match=r"within 0\.5 s after a reset, nor after a power cycle"):
            board.reset_and_boot(soon())


@needs_stm32flash
def test_third_party_programmer_that_finds_no_boot_rom_is_the_benchs(bench: EmulatedBench, tmp_path: Path) -> None:
    image = load_image(BUILD / "copy" / "app.bin", 0x0800_0000)
    with opened(bench, tmp_path / "board.log", flash=STM32FLASH, boot={"driver": "none"}) as board:
        with pytest.raises(BoardError, match="`stm32flash` failed with exit status 1") as caught:
            board.flash(image, "always", soon())
        assert caught.value.seen == "Failed to init device, timeout."
        assert board.flash(image, "never", soon()).skipped, "the console is back"


@pytest.mark.filterwarnings("ignore:set:DeprecationWarning")  # pyserial's own
def test_board_behind_an_rfc2217_server_with_parity_and_modem_lines(
    bench: EmulatedBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rig.board.flash.an3155_exchange.STALL_S", 30.0)  # retries are counted: none for a busy host
    with Bridge(bench.bench.board.serial.port, bench.lines) as bridge:
        remote = {
            "serial": {"port": bridge.url, "baud": 115_200},
            "reset": {"driver": "dtr"},
            "boot": {"driver": "rts"},
            "flash": {"driver": "an3155", "baud": 921_600, "parity": "even"},
        }
        with opened(bench, tmp_path / "board.log", **remote) as board:
            image = load_image(BUILD / "zero_copy" / "app.bin", board.config.flash.image_address)
            report = board.flash(image, "always", soon())
            assert (report.verified, report.retries) == (True, 0)
            board.ensure_identity(soon())
            boot = board.reset_and_boot(soon())
            assert (boot.build, boot.reset) in [(image.build_id, "pin"), (image.build_id, "cold")]
            board.prove_identity(image)
            board.wait_ready(soon())
            assert board.counters(soon())["tx_answers"] == 0
            assert board.flash(image, "if-changed", soon()).skipped
            assert board.reset_and_boot(soon()).build == image.build_id
        changes = [entry for entry in bridge.log if entry[0] in ("parity", "baudrate", "dtr", "rts")]
        first = {name: next(value for key, value in changes if key == name) for name in ("dtr", "rts")}
        assert first == {"dtr": False, "rts": False}, "no pulse at open"
        assert changes.index(("rts", True)) < changes.index(("dtr", True)) < changes.index(("parity", "E"))
        assert [value for key, value in changes if key == "parity" and value in "NE"][-1] == "N"


@pytest.mark.filterwarnings("ignore:set:DeprecationWarning")
def test_serial_server_that_dies_is_a_lost_board(bench: EmulatedBench, tmp_path: Path) -> None:
    from rig.board.serial_port import BoardLostError

    with Bridge(bench.bench.board.serial.port, bench.lines) as bridge:
        remote = {"serial": {"port": bridge.url}, "reset": {"driver": "dtr"}, "boot": {"driver": "rts"}}
        with opened(bench, tmp_path / "board.log", **remote) as board:
            bridge.hang_up()
            with pytest.raises(BoardLostError, match="board lost"):
                board.console.wait_for_line("never said", soon())


def test_run_of_a_foreign_image_without_a_banner_asks_no_console(tmp_path: Path) -> None:
    ours = (BUILD / "zero_copy" / "app.bin").read_bytes()
    foreign = tmp_path / "product.bin"
    foreign.write_bytes(ours.replace(b"rig-fw ", b"product"))
    plan = tmp_path / "foreign.plan.yaml"
    plan.write_text(
        "plan: foreign\n"
        "description: Answers whoever asks.\n"
        "firmware: {variant: zero_copy}\n"
        "inference: {mode: request, requests: 20, answer_tokens: 4, load: {closed: {in_flight: 1}}}\n"
        "flows:\n"
        "  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}\n"
        "  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}\n"
        "checks: {no-loss: {loss: {of: requests, answered_by: answers}, limits: {count: {max: 0}}}}\n"
    )

    def rig_run(records: str, *arguments: str) -> Path:
        command = [
            sys.executable,
            "-m",
            "rig.cli",
            "run",
            str(plan),
            "--record-dir",
            str(tmp_path / records),
            *arguments,
        ]
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        done = subprocess.run(
            [*command, *arguments],
            cwd=BUILD.parents[1],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return next((tmp_path / records).glob("*/*/run.json"))

    rig_run("ours")  # leaves the identity block that the foreign image is not given
    record = rig_run("foreign", "--firmware", str(foreign))
    run = json.loads(record.read_text())
    assert run["firmware"]["proven_by"] == "flash read back"
    assert "counters" not in run["board"]
    log = record.with_name("board.log").read_text()
    assert "identity block left alone" in log
    assert "counter " not in log
