"""Firmware images: three formats with one meaning, and a sentence for each way to be wrong."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rig.board.image import Image, Segment, load_image
from rig.errors import BoardError

FLASH = 0x0800_0000
BUILD_ID = bytes(range(1, 21))
NOTE = struct.pack("<III", 4, 20, 3) + b"GNU\0" + BUILD_ID


def elf(segments: list[tuple[int, bytes]], notes: bytes = b"", machine: int = 40, cls: bytes = b"\x01\x01") -> bytes:
    parts = [(1, address, data) for address, data in segments] + ([(4, 0, notes)] if notes else [])
    header = struct.pack(
        "<16sHHIIIIIHHHHHH", b"\x7fELF" + cls + b"\x01", 2, machine, 1, 0, 52, 0, 0, 52, 32, len(parts), 0, 0, 0
    )
    table, body = b"", b""
    at = 52 + 32 * len(parts)
    for kind, address, data in parts:
        # The virtual address differs from the physical one, as for initialised data.
        table += struct.pack("<IIIIIIII", kind, at + len(body), 0x2000_0000, address, len(data), len(data) + 100, 5, 4)
        body += data
    return header + table + body


def load(tmp_path: Path, name: str, raw: bytes, address: int = FLASH) -> Image:
    path = tmp_path / name
    path.write_bytes(raw)
    return load_image(path, address)


def hex_text(segments: list[tuple[int, bytes]], end: bool = True) -> bytes:
    from io import StringIO

    from intelhex import IntelHex

    hexes = IntelHex()
    for address, data in segments:
        hexes.puts(address, data)
    out = StringIO()
    hexes.write_hex_file(out)
    text = out.getvalue()
    return (text if end else text.replace(":00000001FF\n", "")).encode()


def test_the_three_formats_of_one_program_are_the_same_image(tmp_path: Path) -> None:
    program = bytes(range(256)) * 3 + NOTE + b"end"
    images = [
        load(tmp_path, "a.bin", program),
        load(tmp_path, "a.elf", elf([(FLASH, program[:500]), (FLASH + 500, program[500:])])),
        load(tmp_path, "a.hex", hex_text([(FLASH, program)])),
    ]
    assert [image.segments for image in images] == [(Segment(FLASH, program),)] * 3
    assert {image.sha256 for image in images} == {hashlib.sha256(program).hexdigest()}
    assert {image.build_id for image in images} == {BUILD_ID.hex()}
    assert {image.build_id_address for image in images} == {FLASH + 768 + 16}


def test_elf_uses_physical_addresses_and_file_sizes(tmp_path: Path) -> None:
    image = load(tmp_path, "a.elf", elf([(FLASH + 0x1000, b"data" * 2), (FLASH, b"text")]))
    assert image.segments == (Segment(FLASH, b"text"), Segment(FLASH + 0x1000, b"data" * 2))
    assert image.size == 12
    assert image.flat == b"text" + b"\xff" * 0xFFC + b"data" * 2


def test_elf_build_id_in_a_note_segment(tmp_path: Path) -> None:
    image = load(tmp_path, "a.elf", elf([(FLASH, b"text")], notes=NOTE))
    assert image.build_id == BUILD_ID.hex()
    assert image.build_id_address is None, "it is not in flash"


def test_elf_linked_for_the_emulated_board_moves_to_the_image_address(tmp_path: Path) -> None:
    raw = elf([(0x6000_0000, b"text"), (0x600F_FFFC, b"data")])
    assert load(tmp_path, "a.elf", raw).segments == (Segment(FLASH, b"text"), Segment(FLASH + 0xFFFFC, b"data"))
    # Not when a part of it lies elsewhere: nobody can guess where that belongs.
    mixed = load(tmp_path, "b.elf", elf([(0x6000_0000, b"text"), (0x6010_0000, b"data")]))
    assert mixed.address == 0x6000_0000


def test_small_holes_are_filled_large_ones_stay(tmp_path: Path) -> None:
    image = load(tmp_path, "a.hex", hex_text([(FLASH, b"a"), (FLASH + 256, b"b"), (FLASH + 600, b"c")]))
    assert image.segments == (Segment(FLASH, b"a" + b"\xff" * 255 + b"b"), Segment(FLASH + 600, b"c"))


def test_two_different_build_ids_in_raw_bytes_prove_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "a.bin", NOTE + NOTE).build_id == BUILD_ID.hex()
    assert load(tmp_path, "b.bin", NOTE + NOTE[:-1] + b"\0").build_id is None
    assert load(tmp_path, "c.bin", NOTE[:-1]).build_id is None


def test_hex_with_segment_addresses_and_start_records(tmp_path: Path) -> None:
    # Record type 02 (0x1000 << 4), type 03 and 05 start addresses, data at 0x10010.
    raw = b":020000021000EC\r\n:0400000300003800C1\r\n:0400000508000000EF\r\n:02001000ABCD76\r\n:00000001FF\r\n"
    assert load(tmp_path, "a.hex", raw).segments == (Segment(0x10010, b"\xab\xcd"),)


@given(st.dictionaries(st.integers(0, 60), st.binary(min_size=1, max_size=40), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hex_reader_agrees_with_intelhex(tmp_path: Path, parts: dict[int, bytes]) -> None:
    from intelhex import IntelHex

    raw = hex_text([(FLASH + 0xF000 + slot * 100, data) for slot, data in parts.items()])
    image = load(tmp_path, "a.hex", raw)
    path = tmp_path / "a.hex"
    other = IntelHex(str(path))
    assert image.flat == other.tobinstr(image.address, image.end - 1)
    assert (image.address, image.end - 1) == (other.minaddr(), other.maxaddr())


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
def test_elf_of_a_real_linker_equals_objcopys_binary(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int table[] = {1, 2, 3};\nint zero[9];\nint main(void) { return table[zero[0]]; }\n")
    (tmp_path / "a.ld").write_text(
        "SECTIONS { .note.gnu.build-id 0x08000000 : { *(.note.gnu.build-id) } .text : { *(.text*) }\n"
        ".data 0x20000000 : AT(LOADADDR(.text) + SIZEOF(.text)) { *(.data*) } .bss : { *(.bss*) } }\n"
    )
    build = "arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -nostdlib -Wl,--build-id -Wl,-T,a.ld -Wl,-e,main a.c -o a.elf"
    subprocess.run(build.split(), cwd=tmp_path, check=True)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", "a.elf", "a.bin"], cwd=tmp_path, check=True)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "ihex", "a.elf", "a.hex"], cwd=tmp_path, check=True)
    images = [load_image(tmp_path / name, FLASH) for name in ("a.elf", "a.bin", "a.hex")]
    assert len({image.sha256 for image in images}) == 1
    assert len({image.build_id for image in images}) == 1
    shown = subprocess.run(["arm-none-eabi-readelf", "-n", "a.elf"], cwd=tmp_path, check=True, capture_output=True)
    assert f"Build ID: {images[0].build_id}" in shown.stdout.decode()


GOOD_HEX = b":0100000041BE\n:00000001FF\n"


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a.bin", b"", "holds no bytes to flash"),
        ("a.bin", b"\x7fELF....", "is an ELF file, not a raw binary"),
        ("a.bin", GOOD_HEX, "is an Intel HEX file, not a raw binary"),
        ("a.img", b"x", "unknown suffix `.img`"),
        ("a.elf", b"MZ", "is no ELF file"),
        ("a.elf", b"\x7fELF", "cut inside its ELF header"),
        ("a.elf", elf([(FLASH, b"text")], machine=62), "not a 32-bit little-endian Arm ELF"),
        ("a.elf", elf([(FLASH, b"text")], cls=b"\x02\x01"), "not a 32-bit little-endian Arm ELF"),
        ("a.elf", elf([]), "no loadable segment"),
        ("a.elf", elf([(FLASH, b"text")])[:-1], "reaches beyond the end of the file"),
        ("a.elf", elf([(FLASH, b"text")])[:60], "program headers are cut"),
        ("a.elf", elf([(FLASH, b"12345678"), (FLASH + 7, b"x")]), "gives 0x08000007 twice"),
        ("a.elf", elf([(FLASH, b"text"), (0x2000_0000, b"data")]), "spreads from 0x08000000 to 0x20000003"),
        ("a.hex", b"", "no end record"),
        ("a.hex", b":0100000041BE\n", "no end record"),
        ("a.hex", b":0100000041BF\n:00000001FF\n", "a.hex:1: checksum"),
        ("a.hex", GOOD_HEX + GOOD_HEX, "a.hex:3: a record follows the end record"),
        ("a.hex", b"\n:01000000zzBE\n", "a.hex:2: not hexadecimal"),
        ("a.hex", b":0200000041BE\n", "a.hex:1: not a record of the length"),
        ("a.hex", b"S0030000FC\n", "a.hex:1: not"),
        ("a.hex", b":00000009F7\n", "a.hex:1: record type 09"),
        ("a.hex", b":00000001FF\n", "holds no bytes to flash"),
    ],
)
def test_unusable_image_says_why(tmp_path: Path, name: str, raw: bytes, message: str) -> None:
    with pytest.raises(BoardError) as caught:
        load(tmp_path, name, raw)
    assert message in caught.value.what


def test_missing_image_and_directory(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="does not exist"):
        load_image(tmp_path / "none.bin", FLASH)
    (tmp_path / "d.bin").mkdir()
    with pytest.raises(BoardError, match="is not a file"):
        load_image(tmp_path / "d.bin", FLASH)


@given(st.binary(max_size=300), st.sampled_from(["a.elf", "a.hex", "a.bin"]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_raise_nothing_but_board_errors(tmp_path: Path, raw: bytes, name: str, damage: bool) -> None:
    if damage:
        whole = bytearray(elf([(FLASH, b"text" * 20)], notes=NOTE) if name == "a.elf" else GOOD_HEX)
        for at, byte in enumerate(raw):
            whole[at * 7 % len(whole)] ^= byte if at % 3 == 0 else 0
        raw = bytes(whole)
    try:
        image = load(tmp_path, name, raw)
    except BoardError:
        return
    assert image.size > 0
