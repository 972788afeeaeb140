"""What other parts rely on in the built images: names, size, build id, reproducibility."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

VARIANTS = ["copy", "zero_copy", "fault_mute", "fault_crash"]
GNU_BUILD_ID_NOTE = struct.pack("<III4s", 4, 20, 3, b"GNU\0")


@pytest.fixture(scope="module")
def build(make: Callable[..., Path]) -> Path:
    return make()


def build_id(image: bytes) -> str:
    assert image.count(GNU_BUILD_ID_NOTE) == 1
    start = image.index(GNU_BUILD_ID_NOTE) + len(GNU_BUILD_ID_NOTE)
    return image[start : start + 20].hex()


def test_boot_rom_is_built(build: Path) -> None:
    assert (build / "rom.elf").read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("variant", VARIANTS)
def test_image_is_small_and_starts_with_a_vector_table(build: Path, variant: str) -> None:
    image = (build / variant / "app.bin").read_bytes()
    assert len(image) < 32 * 1024
    stack_pointer, reset = struct.unpack_from("<II", image)
    assert 0x0100_0000 < stack_pointer <= 0x0120_0000
    assert 0x6000_0000 < reset < 0x6000_0000 + len(image)
    assert reset % 2 == 1


def test_every_image_carries_its_own_build_id(build: Path) -> None:
    ids = {build_id((build / variant / "app.bin").read_bytes()) for variant in VARIANTS}
    assert len(ids) == len(VARIANTS)
    for variant in VARIANTS:
        noted = subprocess.run(
            ["arm-none-eabi-readelf", "-n", build / variant / "app.elf"], capture_output=True, text=True, check=True
        ).stdout
        assert build_id((build / variant / "app.bin").read_bytes()) in noted


def test_the_same_source_gives_the_same_image_in_another_folder(build: Path, firmware: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "firmware"
    shutil.copytree(firmware, copy, ignore=shutil.ignore_patterns("build"))
    subprocess.run(["make", "-C", copy, "build/copy/app.bin"], capture_output=True, check=True)
    assert (copy / "build" / "copy" / "app.bin").read_bytes() == (build / "copy" / "app.bin").read_bytes()


def test_an_lwip_folder_without_lwip_is_named(firmware: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "-C", firmware, f"LWIP_DIR={tmp_path}", f"BUILD={tmp_path / 'build'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert f"LWIP_DIR={tmp_path} holds no src/core/init.c" in done.stderr
