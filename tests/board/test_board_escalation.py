"""A silent board is woken step by step: reset, power cycle, then an error or a finding. Every step is told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_board import BUILD, FakeBoard

from rig.bench import model
from rig.board import wires
from rig.board.board import Board
from rig.board.escalation import Step, boot_bound_s, flash_programs_bound_s, wake
from rig.board.events import Fault
from rig.board.flash import an3155_exchange
from rig.board.image import Image
from rig.board.report import BoardSilentError, BootFailure
from rig.board.serial_port import BoardLostError, PortMissingError
from rig.deadline import Deadline
from rig.errors import BoardError

FLASH = 0x0800_0000
IDENTITY = {"name": "board-1", "mac": "02:52:49:47:00:10", "address": "10.77.0.10"}
POWER = {"driver": "emulated", "off_for": "1 ms"}

Open = Callable[..., Board]


@pytest.fixture
def open_board(open_board: Open) -> Open:
    """Boards with a power switch."""
    return lambda fake, **settings: open_board(fake, **{"power": POWER, **settings})


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeBoard, Board], None]:
    """Silence that is sure to come is waited for shortly; from a power cycle on, an answer has all the time."""

    def wait(board: Board, seconds: float) -> None:
        board.config = board.config.model_copy(update={"boot_budget": int(seconds * 1e9)})
        monkeypatch.setattr(an3155_exchange, "SYNC_S", seconds)

    def arrange(fake: FakeBoard, board: Board) -> None:
        def power(on: bool, switch: Callable[[bool], None] = fake.power) -> None:
            wait(board, 30)
            switch(on)

        wait(board, 0.05)
        fake.hung = True
        monkeypatch.setattr(fake, "power", power)

    return arrange


def soon() -> Deadline:
    return Deadline.after(30)


def notes(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "board.log").read_text().splitlines()
    return [line.partition("# rig: ")[2] for line in lines if "# rig: " in line]


# --- the ladder -------------------------------------------------------------------------------------------------------


def climb(answers_at: int, steps: int = 3, deadline: Deadline | None = None) -> tuple[list[str], str | None]:
    """What was done and told on a board that answers after step number `answers_at`; the error in the end, if any."""
    done: list[str] = []

    def listen() -> str:
        if len([entry for entry in done if entry.startswith("do")]) == answers_at:
            return "heard"
        raise BoardSilentError("no banner within 1 s", seen=f"noise {len(done)}", hint="look")

    ladder = [Step(f"step {n}", lambda n=n: done.append(f"do {n}")) for n in range(1, steps + 1)]  # type: ignore[misc]
    try:
        assert wake(ladder, listen, deadline or soon(), done.append) == "heard"
    except BoardSilentError as error:
        return done, f"{error.what} ({error.hint})"
    return done, None


def test_board_that_answers_at_once_is_not_escalated() -> None:
    assert climb(1) == (["do 1"], None)


def test_each_further_step_is_told_and_so_is_its_success() -> None:
    told = ["do 1", "silent after step 1: step 2", "do 2", "it answers after step 2"]
    assert climb(2) == (told, None)


def test_last_silence_names_all_that_was_tried() -> None:
    done, what = climb(0, steps=2)
    assert done == ["do 1", "silent after step 1: step 2", "do 2"]
    assert what == "no banner within 1 s after step 1, nor after step 2 (look)"


def test_step_without_time_left_is_not_begun_and_named() -> None:
    done, what = climb(0, steps=2, deadline=Deadline.after(0))
    assert done == ["do 1"]
    assert what == "no banner within 1 s after step 1, and no time was left for step 2 (look)"


def test_other_errors_end_the_climb() -> None:
    def fail() -> None:
        raise BoardLostError("gone")

    with pytest.raises(BoardLostError):
        wake([Step("a", fail), Step("b", lambda: pytest.fail("a second step"))], lambda: None, soon(), print)


def test_phase_is_given_time_for_every_step() -> None:
    board = {"serial": {"port": "/dev/ttyX"}, "identity": IDENTITY, "boot_budget": "7 s"}
    assert boot_bound_s(model.Board.model_validate(board)) == 7
    board["reset"], board["boot"] = by_program("20 s"), by_program("4 s")
    assert boot_bound_s(model.Board.model_validate(board)) == (4 + 20 + 20) + 7
    board["power"] = by_program("15 s") | {"off_for": "3 s"}
    again = 10 + (4 + 20 + 20)  # the port came back, another reset
    assert boot_bound_s(model.Board.model_validate(board)) == (4 + 20 + 20) + 7 + (4 + 15 + 3 + 15 + again) + 7


def by_program(deadline: str) -> dict[str, object]:
    one = {"command": ["true"], "deadline": deadline}
    return {"driver": "command", "on": one, "off": one}


def test_flashing_is_given_time_for_the_labs_programs() -> None:
    board: dict[str, object] = {"serial": {"port": "/dev/ttyX"}, "identity": IDENTITY, "boot_budget": "7 s"}
    assert flash_programs_bound_s(model.Board.model_validate(board), 2) == 0
    board["boot"] = by_program("5 s")
    assert flash_programs_bound_s(model.Board.model_validate(board), 2) == 5
    write, read = ({"command": ["true"], "deadline": deadline} for deadline in ("120 s", "60 s"))
    board["flash"] = {"driver": "command", "command": write}
    trusted = 2 * (5 + 10 + 120) + 2 * (5 + 7)  # each region once; what runs is asked twice
    assert flash_programs_bound_s(model.Board.model_validate(board), 2) == trusted
    board["flash"] = {"driver": "command", "command": write, "read": read}
    compared = 2 * (3 * (5 + 10) + 60 + 120 + 60)  # read, write, read
    assert flash_programs_bound_s(model.Board.model_validate(board), 2) == compared


def test_slow_reset_program_takes_nothing_of_the_boards_time_to_boot(
    fake: FakeBoard, open_board: Open, image: Image, tmp_path: Path
) -> None:
    released = tmp_path / "released"
    os.mkfifo(released)

    def boot() -> None:
        released.read_text()
        time.sleep(0.2)
        fake.say(fake.banner)

    slow = {"command": ["sh", "-c", f"sleep 1.5; echo > {released}"], "deadline": "20 s"}
    reset = {"driver": "command", "on": {"command": ["true"]}, "off": slow}
    board = open_board(fake, power={"driver": "none"})
    board.flash(image, "always", soon())
    board.close()
    threading.Thread(target=boot, daemon=True).start()
    board = open_board(fake, power={"driver": "none"}, reset=reset, boot_budget="1 s")
    assert board.reset_and_boot(Deadline.after(boot_bound_s(board.config))).build == BUILD


def test_board_that_was_not_listened_to_for_its_whole_budget_is_not_blamed(
    fake: FakeBoard, open_board: Open, image: Image
) -> None:
    fake.banner, fake.after_boot = "", []
    board = open_board(fake, power={"driver": "none"})
    board.flash(image, "always", soon())
    with pytest.raises(BoardError, match=r"had less than its `boot_budget` of 10 s to boot, since the 0\.1 s"):
        board.reset_and_boot(Deadline.after(0.1))


def test_power_program_has_its_own_time_when_that_of_the_phase_is_over(
    fake: FakeBoard, open_board: Open, tmp_path: Path
) -> None:
    on = {"command": ["sh", "-c", f"sleep 0.5; touch {tmp_path / 'on'}"], "deadline": "20 s"}
    board = open_board(fake, power={"driver": "command", "on": on, "off": {"command": ["true"]}, "off_for": "1 ms"})
    with pytest.raises(BoardError, match="was ended after"):
        board._wires.power_cycle(False, Deadline.after(0))
    assert (tmp_path / "on").exists()


# --- boot -------------------------------------------------------------------------------------------------------------


def test_board_that_hangs_boots_after_a_power_cycle_and_the_log_says_so(
    fake: FakeBoard, open_board: Open, short_silence: Callable[[FakeBoard, Board], None], tmp_path: Path
) -> None:
    board = open_board(fake)
    short_silence(fake, board)
    live: list[str] = []
    assert board.reset_and_boot(soon(), live.append).build == BUILD
    assert fake.switched == [False, True]
    steps = ["silent after a reset: a power cycle", "it answers after a power cycle"]
    assert live == steps
    assert board.escalation() == "; silent after a reset: a power cycle; it answers after a power cycle"
    assert board.escalation() == "", "told once"
    assert notes(tmp_path) == [
        "reset into the application",
        steps[0],
        "power off for 0.001 s",
        "power on",
        steps[1],
    ]
    assert board.observations() == (), "a power cycle of ours is no restart of its own"


def test_board_that_boots_is_never_power_cycled(fake: FakeBoard, open_board: Open) -> None:
    board = open_board(fake)
    board.reset_and_boot(soon())
    assert (fake.switched, board.escalation()) == ([], "")


def test_silence_after_all_steps_is_an_error_of_the_bench_without_a_proven_flash(
    fake: FakeBoard, open_board: Open
) -> None:
    fake.banner, fake.after_boot = "", ["bad magic in slot 0"]
    board = open_board(fake, boot_budget="50 ms")
    with pytest.raises(BoardSilentError) as caught:
        board.reset_and_boot(soon())
    assert caught.value.what == "no boot banner from the board within 0.05 s after a reset, nor after a power cycle"
    assert "a power cycle did not help" in (caught.value.hint or "")


def test_verified_flash_that_never_boots_stays_a_finding_about_the_product(
    fake: FakeBoard, open_board: Open, image: Image
) -> None:
    fake.banner, fake.after_boot = "", []
    board = open_board(fake, boot_budget="50 ms")
    board.flash(image, "always", soon())
    with pytest.raises(BootFailure) as caught:
        board.reset_and_boot(soon())
    assert caught.value.observation.kind == "no-boot"
    assert "within 0.05 s after a reset, nor after a power cycle" in caught.value.observation.detail
    assert fake.switched == [False, True]


def test_fault_is_the_products_and_not_power_cycled_away(fake: FakeBoard, open_board: Open) -> None:
    fake.banner, fake.after_boot = "FAULT HardFault pc=0x08000123", []
    board = open_board(fake, boot_budget="50 ms")
    fake.on_restart = lambda: board.console.wait_for_event(Fault, soon(), 0) and None
    with pytest.raises(BootFailure, match="faults before its banner"):
        board.reset_and_boot(soon())
    assert fake.switched == []


def test_bench_without_power_switch_says_what_a_person_can_do(fake: FakeBoard, open_board: Open) -> None:
    fake.hung = True
    board = open_board(fake, power={"driver": "none"}, boot_budget="50 ms")
    with pytest.raises(BoardSilentError, match=r"(?m)within 0\.05 s after a reset$") as caught:
        board.reset_and_boot(soon())
    assert "power-cycle the board by hand" in (caught.value.hint or "")
    assert "`power:`" in (caught.value.hint or "")


def test_power_comes_back_when_a_person_interrupts(
    fake: FakeBoard, open_board: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.hung = True
    board = open_board(fake, boot_budget="50 ms")

    def interrupted(seconds: float) -> None:
        if fake.switched == [False]:
            raise KeyboardInterrupt

    monkeypatch.setattr(wires.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        board.reset_and_boot(soon())
    assert fake.switched == [False, True]


# --- boot ROM ---------------------------------------------------------------------------------------------------------


def test_silent_boot_rom_is_power_cycled_with_the_boot_line_held(
    fake: FakeBoard,
    open_board: Open,
    short_silence: Callable[[FakeBoard, Board], None],
    image: Image,
    tmp_path: Path,
) -> None:
    board = open_board(fake)
    short_silence(fake, board)
    assert board.flash(image, "always", soon()).verified
    assert fake.flash_at(FLASH, image.size) == image.flat
    assert fake.resets == ["rom"]
    assert "silent after a reset: a power cycle" in board.escalation()
    assert board.reset_and_boot(soon()).build == BUILD
    assert "power off for 0.001 s" in notes(tmp_path)


def test_boot_rom_that_stays_silent_is_an_error_that_names_both_steps(
    fake: FakeBoard, open_board: Open, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(an3155_exchange, "SYNC_S", 0.2)
    board = open_board(fake, boot={"driver": "none"})
    with pytest.raises(
        BoardSilentError, match=r"did not answer 0x7F .* after a reset, nor after a power cycle"
    ) as caught:
        board.flash(image, "always", soon())
    assert "rig-fw" in (caught.value.seen or ""), "what ran instead is shown"
    assert "a power cycle did not help" in (caught.value.hint or "")
    fake.say("still here")
    board.console.wait_for_line("still here", soon(), 0)


def test_wrong_chip_is_not_power_cycled(fake: FakeBoard, open_board: Open, image: Image) -> None:
    with pytest.raises(BoardError, match="product id"):
        open_board(fake, flash={"parity": "none", "product_id": 0x413}).flash(image, "always", soon())
    assert fake.switched == []
    assert not fake.boot


# --- a port that the board feeds --------------------------------------------------------------------------------------


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[FakeBoard]:
    with FakeBoard(tmp_path / "usb-board") as fed:
        yield fed


def test_port_that_goes_with_the_power_is_found_again_under_its_name(
    fed: FakeBoard, open_board: Open, short_silence: Callable[[FakeBoard, Board], None], tmp_path: Path
) -> None:
    board = open_board(fed)
    short_silence(fed, board)
    before = fed.node
    boot = board.reset_and_boot(soon())
    assert boot.boot_id == "00000002", "the reset after the port came back; the first banner may be lost with the port"
    assert f"serial port is back as {fed.node}" in notes(tmp_path)
    assert fed.resets == ["application", "application"]
    fed.answers["info"] = ["on " + fed.node, "ok"]
    assert board.console.command("info", soon()) == ["on " + fed.node]
    assert before != fed.node or fed.switched == [False, True]


def test_boot_rom_behind_a_port_that_goes_with_the_power(
    fed: FakeBoard, open_board: Open, short_silence: Callable[[FakeBoard, Board], None], image: Image
) -> None:
    board = open_board(fed)
    short_silence(fed, board)
    assert board.flash(image, "always", soon()).verified
    assert fed.resets == ["rom", "rom"]
    assert board.reset_and_boot(soon()).build == BUILD


def test_port_that_does_not_come_back_is_missing(
    fed: FakeBoard, open_board: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wires, "PORT_BACK_S", 0.3)
    fed.hung = True
    board = open_board(fed, boot_budget="50 ms")
    monkeypatch.setattr(fed, "plug_in", lambda: None)
    monkeypatch.setattr(fed, "_restart", lambda: None)
    with pytest.raises(PortMissingError, match="usb-board does not exist"):
        board.reset_and_boot(soon())
    fed._controller = -1


def test_board_left_without_power_is_switched_on_at_open(fed: FakeBoard, open_board: Open, tmp_path: Path) -> None:
    fed.power(False)
    board = open_board(fed)
    assert fed.switched == [False, True]
    assert board.reset_and_boot(soon()).build == BUILD
    assert notes(tmp_path)[0] == f"serial port {fed.path} is missing: power on"


def test_missing_port_of_a_bench_without_power_switch_is_told_at_once(fed: FakeBoard, open_board: Open) -> None:
    fed.power(False)
    with pytest.raises(PortMissingError, match="does not exist"):
        open_board(fed, power={"driver": "none"})


def test_port_that_vanishes_in_mid_flash_is_found_by_the_next_run_under_its_new_name(
    fed: FakeBoard, open_board: Open, image: Image
) -> None:
    board = open_board(fed)
    first = fed.node
    with pytest.raises(BoardLostError, match=r"board lost: serial port .*usb-board failed while"):
        board.flash(image, "always", soon(), lambda step: fed.unplug() if step.phase == "write" else None)
    board.close()
    with FakeBoard():  # takes the number that became free
        fed.plug_in()
        assert fed.node != first
        again = open_board(fed)
        assert again.flash(image, "always", soon()).verified
        assert fed.flash_at(FLASH, image.size) == image.flat
        assert again.reset_and_boot(soon()).build == BUILD
        again.close()
