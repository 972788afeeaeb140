"""What a reading engine hands on: the frame table's columns in file order, and what it noticed on the way.

There are two engines, `plain` and `native`, which give the same rows.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rig.timing.table import FlowKey

COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    "number": np.dtype("<u4"),
    "time_ns": np.dtype("<i8"),
    "first_ns": np.dtype("<i8"),
    "wire_len": np.dtype("<u4"),
    "cap_len": np.dtype("<u4"),
    "payload_off": np.dtype("<u8"),
    "payload_len": np.dtype("<u4"),
    "payload_cap": np.dtype("<u4"),
    "flow": np.dtype("<i4"),
    "interface": np.dtype("<u2"),
    "proto": np.dtype("u1"),
}

Column: TypeAlias = NDArray[Any]
Progress: TypeAlias = Callable[[int, int], None]
"""Called now and then with (bytes done, bytes in all)."""

STEP: Final = 16 << 20
"""Bytes between two calls of Progress."""

_ON_DISK_FROM: Final = 64 << 20
"""Columns of more bytes than this live in a file: a capture of gigabytes then costs little anonymous memory."""


class StepBack(NamedTuple):
    """The largest step back in time within an interface: at this frame, by ns."""

    interface: int
    number: int
    by_ns: int


class Cut(NamedTuple):
    """Frames of which the file has less than was on the wire: how many, and the first of them."""

    frames: int
    number: int
    cap_len: int
    wire_len: int


@dataclass
class Rows:
    """Columns (see FrameTable) in file order. Columns that are equal throughout may be the same array, and a constant
    one a single value seen n times: they are to be read only.

    joined: payloads of datagrams that came in fragments, which offsets from `decode.JOINED` on point into. untimed:
    frames without a time, which are in no row. incomplete: fragmented datagrams that never became whole. not_listed:
    packets of too many flows, which have none. frames: interface → rows.
    """

    columns: dict[str, Column]
    flows: list[FlowKey]
    joined: bytearray
    untimed: int = 0
    incomplete: int = 0
    not_listed: int = 0
    in_order: bool = True
    cut: Cut | None = None
    frames: dict[int, int] = field(default_factory=dict)
    steps_back: list[StepBack] = field(default_factory=list)


def new_column(name: str, count: int) -> Column:
    """An uninitialised column; memory is used as it is filled."""
    dtype = COLUMNS[name]
    size = count * dtype.itemsize
    column: Column
    if size > _ON_DISK_FROM:
        with tempfile.TemporaryFile(prefix="rig-columns-", dir=large_temporary()) as file:
            try:
                # Reserved, so that a full disk shows here and not as SIGBUS at the first touch.
                os.posix_fallocate(file.fileno(), 0, size)
                column = np.frombuffer(mmap.mmap(file.fileno(), size), dtype)
                return column
            except OSError:
                pass  # No room there: in memory, then.
    column = np.empty(count, dtype)
    return column


def large_temporary() -> str:
    """Where large temporary files go: not to /tmp, which may be in memory (file-hierarchy(7))."""
    return tempfile.gettempdir() if "TMPDIR" in os.environ or not Path("/var/tmp").is_dir() else "/var/tmp"


def sort_by_time(columns: dict[str, Column]) -> dict[str, Column]:
    """The columns sorted by time; rows of equal time stay in file order."""
    order = np.argsort(columns["time_ns"], kind="stable")
    moved: dict[int, Column] = {}
    for name, column in columns.items():
        if id(column) in moved or column.strides == (0,):
            continue
        taken = new_column(name, len(order))
        np.take(column, order, out=taken, mode="clip")  # The mode that needs no buffer.
        moved[id(column)] = taken
    return {name: moved.get(id(column), column) for name, column in columns.items()}
