"""The bytes of a capture file: read, mapped, or unpacked first (gzip, RFC 1952; zstd, RFC 8878)."""

from __future__ import annotations

import ctypes
import gzip
import mmap
import os
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from rig.capture.frames import Buffer, Findings
from rig.capture.rows import large_temporary
from rig.errors import CaptureError, InternalError

MAP_FROM: Final = 4 << 20
"""Files larger than this are mapped, not read: their bytes then cost no anonymous memory."""
MAX_UNPACKED: Final = 64 << 30

_GZIP, _ZSTD, _ZSTD_SKIPPABLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"
_CHUNK: Final = 1 << 20


@contextmanager
def open_contents(path: Path, findings: Findings) -> Iterator[tuple[Buffer, IO[bytes]]]:
    """(the unpacked bytes, the file that has them). A damaged packed stream is a finding.

    Raises CaptureError when the file cannot be read, InternalError when what unpacks it is not installed.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            unpack = _unpacker(head)
            if unpack is None:
                yield _buffer(file), file
                return
            with tempfile.TemporaryFile(prefix="rig-capture-", dir=large_temporary()) as unpacked:
                unpack(file, unpacked, findings)
                yield _buffer(unpacked), unpacked
    except OSError as error:
        raise CaptureError(f"cannot read the capture file {path}: {error.strerror or error}") from error


def with_joined(data: Buffer, file: IO[bytes], joined: bytearray) -> tuple[bytes | memoryview, int]:
    """(the contents and `joined` as one buffer, where `joined` begins in it).

    Of a mapped file the pages are not copied: both are mapped into one range of addresses.
    """
    if isinstance(data, bytes):
        return data + bytes(joined), len(data)
    begin = (len(data) + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    with tempfile.TemporaryFile(prefix="rig-joined-", dir=large_temporary()) as tail:
        tail.write(joined)
        tail.flush()
        whole = _map_side_by_side([(file.fileno(), 0, len(data)), (tail.fileno(), begin, len(joined))])
    return whole, begin


def _unpacker(head: bytes) -> Callable[[IO[bytes], IO[bytes], Findings], None] | None:
    if head[:2] == _GZIP:
        return _gunzip
    if head == _ZSTD or (head[1:] == _ZSTD_SKIPPABLE and head[0] >> 4 == 5):
        return _unzstd
    return None


def _gunzip(packed: IO[bytes], unpacked: IO[bytes], findings: Findings) -> None:
    size = 0
    try:
        with gzip.GzipFile(fileobj=packed) as stream:
            while chunk := stream.read1(_CHUNK):
                size += len(chunk)
                if _too_large(size, findings):
                    return
                unpacked.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        findings.add("cut-file", "the gzip stream is damaged", f"after {size} unpacked bytes: {error}")


def _unzstd(packed: IO[bytes], unpacked: IO[bytes], findings: Findings) -> None:
    try:
        import zstandard
    except ImportError as error:
        raise InternalError(
            "the capture file is compressed with zstd, and the Python package `zstandard` is not installed",
            hint="pip install zstandard, or unpack the file first: zstd -d FILE",
        ) from error
    size = 0
    try:
        # The window is bounded, whatever the file claims (RFC 8878 section 3.1.1.1.2 recommends 8 MiB).
        unpacker = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        with unpacker.stream_reader(packed, read_across_frames=True, closefd=False) as stream:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                if _too_large(size, findings):
                    return
                unpacked.write(chunk)
    except zstandard.ZstdError as error:
        findings.add("cut-file", "the zstd stream is damaged", f"after {size} unpacked bytes: {error}")


def _too_large(size: int, findings: Findings) -> bool:
    if size > MAX_UNPACKED:
        findings.add("cut-file", "the unpacked capture is too large", f"more than {MAX_UNPACKED} bytes")
        return True
    return False


def _buffer(file: IO[bytes]) -> Buffer:
    file.flush()
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= MAP_FROM:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_MAP_FIXED: Final = 0x10


def _map_side_by_side(parts: list[tuple[int, int, int]]) -> memoryview:
    """Map files (descriptor, place in the range, size) read-only into one range of addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    size = max(place + length for _, place, length in parts)
    # Reserved without access first, so that nobody else's mapping can be hit by those at fixed places.
    address = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if address == _MAP_FAILED:
        raise MemoryError(f"no {size} bytes of address space")
    contents = (ctypes.c_char * size).from_address(address)
    weakref.finalize(contents, libc.munmap, address, size)
    for descriptor, place, length in parts:
        if length:
            mapped = libc.mmap(address + place, length, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
            if mapped == _MAP_FAILED:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return memoryview(contents).cast("B").toreadonly()
