"""Firmware images: `.elf` (ELF32, physical addresses), `.hex` (Intel HEX) and `.bin` with an address, as segments.

References: TIS ELF 1.2 (program headers), Intel Hexadecimal Object File Format rev. A, GNU `NT_GNU_BUILD_ID`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rig.errors import BoardError, UsageError

GAP_FILLED = 256
"""Holes smaller than this between segments are filled with 0xFF, so that no flash word is written twice."""
FILE_LIMIT = 64 << 20
"""An ELF with debug information may be tens of MiB; beyond this the file is something else."""
SPAN_LIMIT = 16 << 20
"""Most bytes from the first to the last address: a segment in RAM beside one in flash is a linking fault."""

EMULATED_BASE, EMULATED_SIZE = 0x6000_0000, 1 << 20
"""Where the emulated board runs what STM32 tools flash at 0x08000000. An ELF whose load addresses all lie here is
moved to the bench's image address, as the boot ROM does the other way round."""

IMAGES = (".elf", ".hex", ".bin")
"""How the names of image files end."""

_BUILD_ID = re.compile(rb"\x04\0\0\0([\x08-\x40])\0\0\0\x03\0\0\0GNU\0", re.DOTALL)


@dataclass(frozen=True)
class Segment:
    address: int
    data: bytes

    @property
    def end(self) -> int:
        """First address after it."""
        return self.address + len(self.data)


@dataclass(frozen=True)
class Image:
    """A firmware image. segments: by address, at least GAP_FILLED apart; build_id: hex, None if it has none."""

    path: Path
    segments: tuple[Segment, ...]
    build_id: str | None

    @property
    def address(self) -> int:
        return self.segments[0].address

    @property
    def end(self) -> int:
        return self.segments[-1].end

    @property
    def size(self) -> int:
        """Bytes in segments, holes left out."""
        return sum(len(segment.data) for segment in self.segments)

    @cached_property
    def flat(self) -> bytes:
        """First to last address, holes as 0xFF: what a programmer makes of it."""
        flat = bytearray(b"\xff") * (self.end - self.address)
        for segment in self.segments:
            flat[segment.address - self.address : segment.end - self.address] = segment.data
        return bytes(flat)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of `flat`, hex: the same for an ELF and the .bin made from it."""
        return hashlib.sha256(self.flat).hexdigest()

    @cached_property
    def build_id_address(self) -> int | None:
        """Where the build id lies in flash: the first place where two builds differ. None when it is not in there."""
        at = self.flat.find(b"GNU\0" + bytes.fromhex(self.build_id)) if self.build_id else -1
        return None if at < 0 else self.address + at + 4


def image_file(path: Path) -> Path:
    """`path`, provided that it names an image; UsageError if not. What is in it shows when it is loaded."""
    if path.is_file() and path.suffix.lower() in IMAGES:
        return path
    raise UsageError(f"{path} is not an existing {', '.join(IMAGES)} file", hint="build it first, or correct the path")


def load_image(path: Path, address: int) -> Image:
    """Read an image file; `address` places a `.bin`. Raises BoardError with a sentence for anything unusable."""
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if path.is_file() and size <= FILE_LIMIT else None
    except FileNotFoundError as error:
        raise BoardError(f"firmware image {path} does not exist", hint="build it first, or correct the path") from error
    except OSError as error:
        raise BoardError(f"firmware image {path} cannot be read", seen=str(error)) from error
    if raw is None:
        raise BoardError(f"firmware image {path} is not a file of at most {FILE_LIMIT >> 20} MiB")
    kind = path.suffix.lower()
    build_id: str | None = None
    if kind == ".elf":
        if not raw.startswith(b"\x7fELF"):
            raise BoardError(
                f"firmware image {path} is no ELF file", seen=f"it begins with {raw[:4]!r}", hint="build it anew"
            )
        segments, build_id = _read_elf(path, raw, address)
    elif kind == ".hex":
        segments = list(_read_hex(path, raw))
    elif kind == ".bin":
        if raw.startswith(b"\x7fELF") or re.match(rb":[0-9A-Fa-f]{10}", raw):
            is_a = "an ELF" if raw.startswith(b"\x7f") else "an Intel HEX"
            raise BoardError(f"firmware image {path} is {is_a} file, not a raw binary", hint="rename it to say so")
        segments = [Segment(address, raw)] if raw else []
    else:
        raise BoardError(
            f"firmware image {path} has the unknown suffix `{path.suffix}`", hint="known are .elf, .hex and .bin"
        )
    merged = _merge(path, segments)
    image = Image(path, merged, build_id)
    return image if build_id else Image(path, merged, _find_build_id(image.flat))


def _merge(path: Path, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Sort, join what touches or nearly does, refuse overlaps."""
    ordered = sorted((s for s in segments if s.data), key=lambda segment: segment.address)
    if not ordered:
        raise BoardError(f"firmware image {path} holds no bytes to flash", hint="build it anew")
    if (span := ordered[-1].end - ordered[0].address) > SPAN_LIMIT:
        raise BoardError(
            f"firmware image {path} spreads from 0x{ordered[0].address:08x} to 0x{ordered[-1].end - 1:08x} "
            f"({span >> 20} MiB)",
            hint="a section has a load address in RAM: give it `AT> FLASH` in the linker script, or NOLOAD",
        )
    groups: list[list[Segment]] = []
    for segment in ordered:
        if groups and (last := groups[-1][-1]).end > segment.address:
            raise BoardError(
                f"firmware image {path} gives 0x{segment.address:08x} twice: segments "
                f"0x{last.address:08x}–0x{last.end - 1:08x} and 0x{segment.address:08x}–0x{segment.end - 1:08x}",
                hint="mend the linker script, or the tool that joined the files",
            )
        if groups and segment.address - groups[-1][-1].end < GAP_FILLED:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    joined = []
    for group in groups:
        parts = []
        at = group[0].address
        for segment in group:
            parts.append(b"\xff" * (segment.address - at) + segment.data)
            at = segment.end
        joined.append(Segment(group[0].address, b"".join(parts)))
    return tuple(joined)


def _find_build_id(flat: bytes) -> str | None:
    """The build id of a note in raw bytes; None when there is none, or several that differ."""
    found = {
        flat[match.end() : match.end() + match[1][0]].hex()
        for match in _BUILD_ID.finditer(flat)
        if match.end() + match[1][0] <= len(flat)
    }
    return found.pop() if len(found) == 1 else None


# --- ELF --------------------------------------------------------------------------------------------------------------

_EHDR = struct.Struct("<16sHHIIIIIHHHHHH")
_PHDR = struct.Struct("<IIIIIIII")
_PT_LOAD, _PT_NOTE, _EM_ARM = 1, 4, 40


def _read_elf(path: Path, raw: bytes, image_address: int) -> tuple[list[Segment], str | None]:
    def damaged(why: str) -> BoardError:
        return BoardError(f"firmware image {path} cannot be used: {why}", hint="build it anew, as a 32-bit Arm ELF")

    if len(raw) < _EHDR.size:
        raise damaged("the file is cut inside its ELF header")
    ident, _, machine, _, _, phoff, _, _, _, phentsize, phnum, *_ = _EHDR.unpack_from(raw)
    if ident[4:6] != b"\x01\x01" or machine != _EM_ARM:
        raise damaged(
            f"it is not a 32-bit little-endian Arm ELF (class {ident[4]}, data {ident[5]}, machine {machine})"
        )
    if (phnum and phentsize != _PHDR.size) or phoff + phnum * _PHDR.size > len(raw):
        raise damaged("its program headers are cut or malformed")
    segments: list[Segment] = []
    build_id: str | None = None
    for index in range(phnum):
        kind, offset, _, physical, filesz, *_ = _PHDR.unpack_from(raw, phoff + index * _PHDR.size)
        if kind not in (_PT_LOAD, _PT_NOTE) or not filesz:
            continue
        if offset + filesz > len(raw):
            raise damaged(f"segment {index} reaches beyond the end of the file")
        data = raw[offset : offset + filesz]
        if kind == _PT_LOAD:
            segments.append(Segment(physical, data))
        else:
            build_id = build_id or _find_build_id(data)
    if not segments:
        raise damaged("it has no loadable segment; is it an object file?")
    emulated = range(EMULATED_BASE, EMULATED_BASE + EMULATED_SIZE)
    if image_address not in emulated and all(s.address in emulated and s.end - 1 in emulated for s in segments):
        segments = [Segment(s.address - EMULATED_BASE + image_address, s.data) for s in segments]
    return segments, build_id


# --- Intel HEX --------------------------------------------------------------------------------------------------------


def _read_hex(path: Path, raw: bytes) -> Iterator[Segment]:
    base = 0
    start, end = 0, 0
    parts: list[bytes] = []
    finished = False
    for number, line in enumerate(raw.split(b"\n"), 1):
        text = line.strip()
        if not text:
            continue

        def wrong(why: str, number: int = number) -> BoardError:
            return BoardError(f"{path}:{number}: {why}", hint="the file is damaged or no Intel HEX")

        if finished:
            raise wrong("a record follows the end record")
        try:
            record = bytes.fromhex(text[1:].decode("ascii"))
        except ValueError as error:
            raise wrong("not hexadecimal digits") from error
        if text[:1] != b":" or len(record) < 5 or len(record) != record[0] + 5:
            raise wrong("not a record of the length that it states")
        if sum(record) & 0xFF:
            raise wrong("checksum does not fit the record")
        address, kind, data = int.from_bytes(record[1:3], "big"), record[3], record[4:-1]
        if kind == 0x00:
            if base + address != end or not parts:
                if parts:
                    yield Segment(start, b"".join(parts))
                start, parts = base + address, []
            parts.append(data)
            end = base + address + len(data)
        elif kind == 0x01:
            finished = True
        elif kind in (0x02, 0x04) and len(data) == 2:
            base = int.from_bytes(data, "big") << (4 if kind == 0x02 else 16)
        elif kind not in (0x03, 0x05):
            raise wrong(f"record type {kind:02x} is unknown or has a wrong length")
    if not finished:
        raise BoardError(f"firmware image {path} has no end record", hint="the file is cut: build or copy it again")
    if parts:
        yield Segment(start, b"".join(parts))
