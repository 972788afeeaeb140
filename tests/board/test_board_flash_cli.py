"""`rig flash` with a lab's own programs: what it says of a board that boots, does not boot, or is not flashed."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_board import BUILD, FakeBoard

from rig.board.image import Image
from rig.cli import main

BENCH = """\
bench: flash-cli
uncertainty: {{declared: 20 us}}
board:
  serial: {{port: {port}}}
  reset:
    driver: command
    on: {{command: ['true']}}
    off: {{command: [sh, -c, {release}]}}
  flash:
    driver: command
    command: {{command: [sh, -c, {write}, sh, '{{image}}', '{{address}}']}}
    read: {{command: [sh, -c, 'cp {flash} "$1"', sh, '{{image}}', '{{address}}', '{{size}}']}}
    identity_address: null
    weights_address: null
  identity: {{name: board-1, mac: '02:52:49:47:00:10', address: 10.77.0.10}}
  boot_budget: {budget}
jetson:
  host: jetson.example
  user: rig
  host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
  bench_address: 10.77.0.20
capture: {{point: inline, interface: enp3s0}}
"""

Flash = Callable[..., int]


@pytest.fixture
def flash(fake: FakeBoard, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flash:
    """`rig flash` of the fixture's image; `write` and `release` are the lab's shell lines."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    kept = tmp_path / "flash.bin"

    def run(write: str = f'cp "$1" {kept}', release: str = "true", budget: str = "300 ms") -> int:
        text = BENCH.format(port=fake.path, flash=kept, write=repr(write), release=repr(release), budget=budget)
        (tmp_path / "bench.yaml").write_text(text)
        return main(["flash", str(image.path), "--mode", "always", "--bench", str(tmp_path / "bench.yaml")])

    return run


def test_phases_are_timed_and_the_banner_is_shown(
    flash: Flash, fake: FakeBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    released = tmp_path / "released"
    os.mkfifo(released)

    def boot() -> None:
        released.read_text()
        time.sleep(0.2)
        fake.say(fake.banner.format(n=1))

    threading.Thread(target=boot, daemon=True).start()
    assert flash(release=f"echo > {released}", budget="30 s") == 0
    [seconds] = re.findall(rf"boot +([0-9.]+) s  rig-fw .*build={BUILD}", capsys.readouterr().out)
    assert float(seconds) >= 0.2


def test_image_that_does_not_boot_is_a_fail_in_one_sentence(
    flash: Flash, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash() == 1
    out, err = capsys.readouterr()
    log = tmp_path / "state" / "rig" / "flash-cli" / "board.log"
    assert err.startswith("FAIL: the board did not boot although its flash was verified: no boot banner")
    assert f"see what it said in {log}" in err
    assert re.search(r"boot +0\.[3-9]\d s  FAILED", out)
    assert "# rig: reset into the application" in log.read_text()


def test_what_the_programmer_said_is_in_the_log_that_is_named(
    flash: Flash, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flash(write="echo target not found; exit 3") == 3
    log = tmp_path / "state" / "rig" / "flash-cli" / "board.log"
    assert f"board.log: {log}" in capsys.readouterr().err
    assert "# rig: | target not found" in log.read_text()
    assert flash() == 1
    assert "target not found" not in log.read_text(), "each time anew"


@pytest.mark.parametrize("named", ["no/such/app.elf", "no-such-variant"])
def test_image_that_is_not_there_is_told_before_the_bench_is_touched(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["flash", named]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
