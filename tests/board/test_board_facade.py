"""The board as a run uses it, against a whole fake board on a pseudo-terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_board import BUILD, FakeBoard

from rig.bench import model
from rig.board.board import Board
from rig.board.console import ConsoleSilentError
from rig.board.events import Boot, Fault
from rig.board.flash.flasher import FlashLink, Progress, Region, make_flasher
from rig.board.identity import IdentityBlock
from rig.board.image import Image, load_image
from rig.board.report import BootFailure, Push
from rig.board.serial_port import BoardLostError, SerialPort
from rig.collecting import _ask_board
from rig.deadline import Deadline
from rig.errors import BoardError, InternalError
from rig.plan.model import Npu
from rig.record import RunInfo, RunSet

FLASH = 0x0800_0000

Open = Callable[..., Board]


def soon() -> Deadline:
    return Deadline.after(30)


# --- flash ------------------------------------------------------------------------------------------


def test_flash_identity_boot_and_proof_in_one_boot_rom_session(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    steps: list[Progress] = []
    report = board.flash(image, "if-changed", soon(), steps.append)
    assert (report.skipped, report.verified, report.build_id) == (False, True, BUILD)
    assert report.size == report.written - (-report.size % 32)
    assert fake.flash_at(FLASH, image.size) == image.flat
    assert {step.phase for step in steps} >= {"erase", "write", "verify"}
    assert board.ensure_identity(soon())
    assert IdentityBlock.parse(fake.flash_at(0x0802_0000, 64)).peer == "10.77.0.20"
    boot = board.reset_and_boot(soon())
    assert boot.build == BUILD
    board.prove_identity(image)
    board.wait_ready(soon())
    assert fake.resets == ["rom", "application"], "the boot ROM is entered once for all regions"
    assert board.observations() == ()


def test_if_changed_skips_what_is_there_and_always_does_not(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    board.flash(image, "always", soon())
    board.ensure_identity(soon())
    writes, erased = len(fake.rom.writes), len(fake.rom.erased)
    report = board.flash(image, "if-changed", soon())
    assert (report.skipped, report.verified, report.written) == (True, True, 0)
    assert not board.ensure_identity(soon())
    assert (len(fake.rom.writes), len(fake.rom.erased)) == (writes, erased)
    fake.rom.flash[100] ^= 1
    assert not board.flash(image, "if-changed", soon()).skipped
    assert not board.flash(image, "always", soon()).skipped


def test_never_does_not_touch_the_board(fake: FakeBoard, open_board: Open, image: Image) -> None:
    report = open_board().flash(image, "never", soon())
    assert (report.skipped, report.verified) == (True, False)
    assert fake.resets == []


def test_weights_are_a_region_of_their_own(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    board.flash(image, "always", soon())
    assert board.write_weights(b"weights!" * 40, soon())
    assert not board.write_weights(b"weights!" * 40, soon())
    assert fake.flash_at(0x0804_0000, 320) == b"weights!" * 40
    assert fake.flash_at(FLASH, image.size) == image.flat
    assert fake.rom.erased == [0, 5]


def test_image_that_covers_the_identity_block_is_refused_at_once(
    fake: FakeBoard, open_board: Open, tmp_path: Path
) -> None:
    (tmp_path / "big.bin").write_bytes(b"x" * (0x20000 + 1))
    with pytest.raises(BoardError, match="covers the identity region at 0x08020000"):
        open_board().flash(load_image(tmp_path / "big.bin", FLASH), "always", soon())
    assert fake.resets == []


def test_console_is_back_after_a_boot_rom_that_does_not_answer(
    fake: FakeBoard, open_board: Open, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rig.board.flash import an3155_exchange

    monkeypatch.setattr(an3155_exchange, "SYNC_S", 0.2)
    board = open_board(boot={"driver": "none"})
    with pytest.raises(BoardError, match="did not answer 0x7F") as caught:
        board.flash(image, "always", soon())
    assert not fake.boot
    assert "rig-fw" in (caught.value.seen or ""), "the application that ran instead of the boot ROM is shown"
    fake.say("still here")
    board.console.wait_for_line("still here", soon(), 0)


def test_boot_line_is_released_after_a_failed_flash(fake: FakeBoard, open_board: Open, image: Image) -> None:
    with pytest.raises(BoardError, match="product id"):
        open_board(flash={"parity": "none", "product_id": 0x413}).flash(image, "always", soon())
    assert fake.resets == ["rom"]
    assert not fake.boot


def test_board_that_vanishes_in_mid_flash_is_lost_and_closes(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    with pytest.raises(BoardLostError, match="board lost"):
        board.flash(image, "always", soon(), lambda step: fake.unplug() if step.phase == "write" else None)
    with pytest.raises(BoardLostError):
        board.console.wait_for_line("anything", soon())
    board.close()


def test_close_releases_the_boot_line(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    board.flash(image, "always", soon())
    assert fake.boot
    board.close()
    assert not fake.boot


# --- boot and alive ------------------------------------------------------------------------------------------


def test_board_that_does_not_boot_after_a_verified_flash_is_a_finding_about_the_product(
    fake: FakeBoard, open_board: Open, image: Image
) -> None:
    fake.banner, fake.after_boot = "", []
    board = open_board(boot_budget="50 ms")
    board.flash(image, "always", soon())
    with pytest.raises(BootFailure) as caught:
        board.reset_and_boot(soon())
    assert caught.value.observation.kind == "no-boot"
    assert "within 0.05 s after a reset; not one line on the console" in caught.value.observation.detail
    assert not isinstance(caught.value, BoardError)


def test_without_a_proven_flash_silence_is_the_benchs(fake: FakeBoard, open_board: Open, image: Image) -> None:
    fake.banner = ""
    board = open_board(boot_budget="50 ms")
    board.flash(image, "never", soon())
    with pytest.raises(ConsoleSilentError, match="no boot banner") as caught:
        board.reset_and_boot(soon())
    assert "not verified in this run" in (caught.value.hint or "")


def test_fault_before_the_banner_is_the_products_in_any_case(fake: FakeBoard, open_board: Open) -> None:
    fake.banner, fake.after_boot = "FAULT HardFault pc=0x08000123", []
    board = open_board(boot_budget="50 ms")
    fake.on_restart = lambda: board.console.wait_for_event(Fault, soon(), 0) and None
    with pytest.raises(BootFailure, match="faults before its banner: FAULT HardFault pc=0x08000123"):
        board.reset_and_boot(soon())


def test_faults_and_restarts_after_the_boot_are_observed(fake: FakeBoard, open_board: Open, image: Image) -> None:
    board = open_board()
    board.reset_and_boot(soon())
    fake.say("FAULT assert p != NULL", fake.banner.replace("reset=pin", "reset=software"), "ready", "done")
    board.console.wait_for_line("done", soon(), 0)
    assert [found.kind for found in board.observations()] == ["fault", "reboot"]
    board.reset_and_boot(soon())
    assert [found.kind for found in board.observations()] == ["fault", "reboot"], "ours is none, theirs stay"
    fake.say("FAULT assert again", "done again")
    board.console.wait_for_line("done again", soon(), 0)
    board.flash(image, "always", soon())
    assert [found.kind for found in board.observations()] == ["fault", "reboot", "fault"], "flashing erases no finding"


def test_half_a_line_and_an_old_banner_before_the_reset_are_not_the_boot(fake: FakeBoard, open_board: Open) -> None:
    board = open_board()
    old = fake.banner.replace("boot_id=0000000{n}", "boot_id=deadbeef")
    fake.say(old)
    fake.raw(b"cut in the mid")
    boot = board.reset_and_boot(soon())
    assert boot.boot_id == "00000001"
    assert board.observations() == ()


def test_banner_that_waits_unread_when_the_board_is_reset_is_not_the_boot(
    fake: FakeBoard, open_board: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = open_board()
    read_at_once = SerialPort.read_some

    def read_late(port: SerialPort) -> bytes:
        time.sleep(0.05)  # longer than reset is held
        return read_at_once(port)

    monkeypatch.setattr(SerialPort, "read_some", read_late)
    fake.say(fake.banner.replace("boot_id=0000000{n}", "boot_id=deadbeef"))
    assert board.reset_and_boot(soon()).boot_id == "00000001"


def test_software_reset_is_not_the_answer_to_the_reset_line(fake: FakeBoard, open_board: Open) -> None:
    fake.banner = fake.banner.replace("reset=pin", "reset=software")
    with pytest.raises(ConsoleSilentError):
        open_board(boot_budget="50 ms").reset_and_boot(soon())


def test_wrong_board_or_build_is_told(fake: FakeBoard, open_board: Open, image: Image) -> None:
    fake.banner = fake.banner.replace("ip=10.77.0.10", "ip=10.77.0.99").replace(BUILD, "cd" * 20)
    board = open_board()
    with pytest.raises(BoardError, match="has not booted yet"):
        board.prove_identity()
    board.reset_and_boot(soon())
    with pytest.raises(
        BoardError, match=r"its ip is 10\.77\.0\.99, the bench file says 10\.77\.0\.10; it runs build cd"
    ):
        board.prove_identity(image)


def test_foreign_image_by_its_own_banner(fake: FakeBoard, open_board: Open) -> None:
    fake.banner, fake.after_boot = "MyOS 3.1 (build cafe)", []
    board = open_board(banner=r"MyOS \S+ \(build (?P<build>\w+)\)")
    assert board.reset_and_boot(soon()).build == "cafe"
    board.prove_identity()


def test_banner_that_is_no_pattern_is_told_and_the_port_is_free_again(fake: FakeBoard, open_board: Open) -> None:
    with pytest.raises(BoardError, match=r"`banner: \(` in the bench file is no regular expression"):
        open_board(banner="(")
    open_board()


def test_foreign_image_without_banner_is_identified_by_its_read_back(
    fake: FakeBoard, open_board: Open, tmp_path: Path
) -> None:
    fake.banner, fake.after_boot = "", []
    (tmp_path / "foreign.bin").write_bytes(b"no banner in here")
    foreign = load_image(tmp_path / "foreign.bin", FLASH)
    board = open_board()
    assert board.flash(foreign, "always", soon()).verified
    assert board.reset_and_boot(soon()).fields == {}
    board.prove_identity(foreign)
    assert fake.resets == ["rom", "application"]


def test_go_does_not_lose_the_banner(fake: FakeBoard, open_board: Open, image: Image) -> None:
    fake._in_rom = True
    fake.boots_on_go = True
    board = open_board(reset={"driver": "none"}, boot={"driver": "none"})
    board.flash(image, "always", soon())
    assert board.reset_and_boot(soon()).build == BUILD


def test_without_a_reset_line_go_starts_the_application(fake: FakeBoard, open_board: Open, image: Image) -> None:
    fake._in_rom = True
    board = open_board(reset={"driver": "none"}, boot={"driver": "none"}, boot_budget="50 ms")
    board.flash(image, "always", soon())
    with pytest.raises(BootFailure):
        board.reset_and_boot(soon())
    assert fake.rom.jumped == FLASH


# --- talking ------------------------------------------------------------------------------------------


def test_configure_counters_and_telemetry(fake: FakeBoard, open_board: Open) -> None:
    fake.answers = {
        "npu first_us=1000 token_us=20 chunk=16": ["ok"],
        "push every_us=5000 count=300 tokens=16": ["ok"],
        "counters": ["counter rx_requests=300", "counter eth_rx_drop=0", "ok"],
        "telemetry": ["t 5 rx id=1", "dropped=0", "ok"],
    }
    board = open_board()
    npu = Npu.model_validate({"first_token": "1 ms", "per_token": "20 us", "tokens_per_datagram": 16})
    board.configure(npu, soon(), Push(5_000_000, 300, 16))
    assert fake.asked == list(fake.answers)[:2]
    assert board.counters(soon()) == {"rx_requests": 300, "eth_rx_drop": 0}
    assert board.telemetry(soon()).events[0].values == {"id": 1}
    with pytest.raises(BoardError, match="1500 ns is finer than the firmware's clock"):
        board.configure(Npu.model_validate({"first_token": "1500 ns"}), soon())
    fake.answers["counters"] = ["counter rx_requests=x", "ok"]
    with pytest.raises(BoardError, match="counters cannot be read"):
        board.counters(soon())


# --- a vendor's programmer ------------------------------------------------------------------------------------------


def programmer(tmp_path: Path, code: str = "") -> dict[str, object]:
    """A programmer that needs the port for itself and notes how it was called."""
    script = (
        "import sys, os, fcntl, pathlib\n"
        "fd = os.open(sys.argv[2], os.O_RDWR | os.O_NOCTTY); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "data = pathlib.Path(sys.argv[3]).read_bytes()\n"
        "open(sys.argv[1], 'a').write(f'{sys.argv[4]} {len(data)} {data[:4].hex()}\\n')\n" + code
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "calls"), "{port}", "{image}", "{address}"]
    return {"driver": "command", "command": {"command": argv}}


def test_programmer_gets_the_port_and_each_region(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    board = open_board(flash=programmer(tmp_path))
    report = board.flash(image, "always", soon())
    assert (report.skipped, report.verified, report.erased) == (False, False, "by the programmer")
    boot = board.reset_and_boot(soon())
    assert boot.build == BUILD
    assert not board.ensure_identity(soon()), "the banner shows the right identity: nothing to write"
    fake.banner = fake.banner.replace("identity=ok", "identity=missing")
    board.reset_and_boot(soon())
    assert board.ensure_identity(soon())
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"0x08000000 {image.size} {image.flat[:4].hex()}", "0x08020000 64 52474944"]


def test_programmer_gets_a_file_with_addresses_of_its_own_untouched_and_once() -> None:
    notes: list[str] = []
    config = model.Flash.model_validate({"driver": "command", "command": {"command": ["echo", "{image}", "{address}"]}})
    flasher = make_flasher(config, FlashLink(None, "/dev/ttyX", notes.append, lambda data: None))
    elf = Path("/build/app.elf")
    regions = [Region("image", FLASH, b"text", elf), Region("image", FLASH + 0x1000, b"data", elf)]
    flasher.program(regions, [], lambda step: None, soon())
    assert notes == ["run echo /build/app.elf 0x08000000", "| /build/app.elf 0x08000000"]


def test_programmer_that_resets_the_board_by_itself(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = open_board(flash=programmer(tmp_path), reset={"driver": "none"}, boot={"driver": "none"})
    wires = board._wires
    reopen = wires._open

    def reopen_and_boot() -> SerialPort:
        port = reopen()
        fake.say(fake.banner.format(n=7))
        return port

    monkeypatch.setattr(wires, "_open", reopen_and_boot)
    board.flash(image, "always", soon())
    board.console.wait_for_event(Boot, soon(), 0)
    assert board.reset_and_boot(soon()).boot_id == "00000007", "also when it came before anybody asked"


def test_if_changed_trusts_the_running_boards_build_id_where_nothing_can_read_back(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    board = open_board(flash=programmer(tmp_path))
    report = board.flash(image, "if-changed", soon())
    assert (report.skipped, report.verified) == (True, False)
    assert not (tmp_path / "calls").exists()


def test_failing_programmer_is_an_error_and_the_console_lives(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    board = open_board(flash=programmer(tmp_path, "print('no target'); sys.exit(2)"))
    with pytest.raises(BoardError, match="failed with exit status 2") as caught:
        board.flash(image, "always", soon())
    assert caught.value.seen == "no target"
    fake.say("still here")
    board.console.wait_for_line("still here", soon(), 0)
    assert "# rig: | no target" in (tmp_path / "board.log").read_text()


def test_full_disk_under_the_log_is_not_told_as_a_board_that_fell_silent(
    fake: FakeBoard, open_board: Open, tmp_path: Path
) -> None:
    record = RunSet.create(tmp_path, []).new_run(RunInfo("", "", "p", "", "", "", "p"), b"", "")
    record.info.board["observations"] = []
    (tmp_path / "board.log").symlink_to("/dev/full")
    board = open_board()
    fake.answers["counters"] = ["counter rx_requests=1", "ok"]
    with pytest.raises(InternalError, match=r"cannot write .*board\.log: No space left on device"):
        _ask_board(board, record, soon())
    assert record.info.board["observations"] == []
