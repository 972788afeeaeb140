"""A fake board, an image for it, and boards opened on it: what most tests of this room stand on."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_board import BUILD, FakeBoard

from rig.bench import model
from rig.board.board import Board
from rig.board.image import Image, load_image

FLASH = 0x0800_0000
IDENTITY = {"name": "board-1", "mac": "02:52:49:47:00:10", "address": "10.77.0.10"}
NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes.fromhex(BUILD)


@pytest.fixture
def fake() -> Iterator[FakeBoard]:
    with FakeBoard() as fake:
        yield fake


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """An image of this project, with a build id, as far as anybody looks into it."""
    path = tmp_path / "app.bin"
    path.write_bytes(b"rig-fw variant=" + bytes(range(256)) * 4 + NOTE)
    return load_image(path, FLASH)


@pytest.fixture
def open_board(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Board]]:
    """`open_board(board, **settings)`: a Board on a fake board (default: the fixture), with a bench file's settings."""
    opened: list[Board] = []

    def open_it(board: FakeBoard | None = None, **settings: object) -> Board:
        peer = board or request.getfixturevalue("fake")
        config = {
            "serial": {"port": peer.path},
            "reset": {"driver": "emulated"},
            "boot": {"driver": "emulated"},
            "flash": {"parity": "none"},
            "identity": IDENTITY,
            "boot_budget": "10 s",
            **settings,
        }
        opened.append(
            Board.open(
                model.Board.model_validate(config),
                peer="10.77.0.20",
                log=tmp_path / "board.log",
                start_ns=time.monotonic_ns(),
                emulated=peer,
            )
        )
        return opened[-1]

    yield open_it
    for board in opened:
        board.close()
