"""The AN3155 flasher and an independent host tool against the same boot ROM, behind a real pseudo-terminal."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from rom_peer import FLASH, PtyPeer, RomPeer

from rig.bench.model import Flash, Serial
from rig.board.flash.an3155_driver import An3155Flasher
from rig.board.flash.flasher import Region
from rig.board.serial_port import SerialPort
from rig.deadline import Deadline

IMAGE = random.Random(1).randbytes(8000)


def test_over_a_pseudo_terminal() -> None:
    with PtyPeer(RomPeer(), greeting=b"old application talks\r\n") as peer:
        with SerialPort.open(Serial(port=peer.path)) as port:
            noise: list[bytes] = []
            driver = An3155Flasher(port, Flash(parity="none"), noise.append)
            driver.connect(Deadline.after(60))
            driver.program([Region("image", FLASH, IMAGE)], [], lambda step: None, Deadline.after(60))
        assert bytes(peer.peer.flash[: len(IMAGE)]) == IMAGE


@pytest.mark.skipif(shutil.which("stm32flash") is None, reason="stm32flash is not installed")
def test_the_peer_satisfies_an_independent_host_tool(tmp_path: Path) -> None:
    """stm32flash drives the same peer: what our driver is tested against speaks the protocol that others speak."""
    (tmp_path / "app.bin").write_bytes(IMAGE)
    with PtyPeer(RomPeer()) as peer:
        argv = ["stm32flash", "-m", "8n1", "-w", str(tmp_path / "app.bin"), "-v", peer.path]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert bytes(peer.peer.flash[: len(IMAGE)]) == IMAGE
