"""The capture kernel in C, loaded with ctypes; None where it was not built. `kernel.h` says what everything means."""

from __future__ import annotations

import ctypes
import os
import sys
import zlib
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

END, LEFT, FULL, NO_MEMORY = range(4)
CAP_LEN, PAYLOAD_CAP, INTERFACE = 1, 2, 4
MAX_VLANS: Final = 4
NOT_LISTED: Final = -1
SOURCES: Final = (
    "kernel.h",
    "state.h",
    "flows.c",
    "decode.c",
    "records.c",
    "tokens.h",
    "tokens.c",
    "arrays.h",
    "arrays.c",
)

_U8, _U16, _U32, _U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
_I32, _I64, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


class Flow(ctypes.Structure):
    """rig_flow"""

    _fields_ = (
        ("vlans", _U16 * MAX_VLANS),
        ("srcport", _U16),
        ("dstport", _U16),
        ("vlan_count", _U8),
        ("address_size", _U8),
        ("proto", _U8),
        ("zero", _U8),
        ("src", _U8 * 16),
        ("dst", _U8 * 16),
    )


class Columns(ctypes.Structure):
    """rig_columns"""

    _fields_ = (
        ("number", _POINTER),
        ("time_ns", _POINTER),
        ("wire_len", _POINTER),
        ("cap_len", _POINTER),
        ("payload_off", _POINTER),
        ("payload_len", _POINTER),
        ("payload_cap", _POINTER),
        ("flow", _POINTER),
        ("interface", _POINTER),
        ("proto", _POINTER),
        ("capacity", _U64),
        ("rows", _U64),
        ("differs", _U32),
        ("unsorted", _U32),
        ("cut", _U64),
        ("cut_number", _U32),
        ("cut_cap_len", _U32),
        ("cut_wire_len", _U32),
    )


class InterfaceState(ctypes.Structure):
    """rig_interface_state"""

    _fields_ = (("frames", _U64), ("back_ns", _U64), ("back_number", _U32))


class Cursor(ctypes.Structure):
    """rig_cursor"""

    _fields_ = (
        ("position", _U64),
        ("limit", _U64),
        ("number", _U32),
        ("first", _U32),
        ("big_endian", _U32),
        ("to_ns", _U32),
    )


class Row(ctypes.Structure):
    """rig_row"""

    _fields_ = (
        ("time_ns", _I64),
        ("payload_off", _U64),
        ("number", _U32),
        ("wire_len", _U32),
        ("cap_len", _U32),
        ("payload_len", _U32),
        ("payload_cap", _U32),
        ("flow", _I32),
        ("interface", _U16),
        ("proto", _U8),
    )


class Payloads(ctypes.Structure):
    """rig_payloads"""

    _fields_ = (
        ("data", _POINTER),
        ("size", _U64),
        ("payload_off", _POINTER),
        ("payload_len", _POINTER),
        ("payload_cap", _POINTER),
        ("rows", _POINTER),
        ("count", _U64),
    )


class TokenColumns(ctypes.Structure):
    """rig_token_columns"""

    _fields_ = tuple(
        (name, _POINTER)
        for name in (
            "row",
            "type",
            "first",
            "last",
            "request_id",
            "sequence",
            "boot_id",
            "t_rx_ns",
            "t_ready_ns",
            "t_send_ns",
            "prev_queued_ns",
            "tokens",
            "answer_tokens",
        )
    )


@cache
def load() -> ctypes.CDLL | None:
    """The library with its prototypes set; None where it was not built, or RIG_NATIVE=0 asks for the plain reader.

    One that was built from other sources than those beside it is not used: its structures may be laid out otherwise.
    """
    if os.environ.get("RIG_NATIVE") == "0" or sys.byteorder != "little":
        return None
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name("kernel" + suffix)
        if path.exists():
            try:
                library = ctypes.CDLL(str(path))
                current = library.rig_sources() & 0xFFFF_FFFF == sources()
            except (OSError, AttributeError):
                return None  # Built for another machine, or long ago.
            return declare(library) if current else None
    return None


def sources() -> int:
    """A checksum of the C sources, which the build writes into the library."""
    checksum = 0
    for name in SOURCES:
        checksum = zlib.crc32(Path(__file__).with_name(name).read_bytes(), checksum)
    return checksum


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Set the prototypes of a built kernel."""
    pointer = ctypes.POINTER
    for name, result, arguments in (
        ("rig_kernel_new", _POINTER, [_U32]),
        ("rig_kernel_free", None, [_POINTER]),
        ("rig_add_interface", ctypes.c_int, [_POINTER, _I32, _U64, _U64, _I64]),
        ("rig_get_interface", ctypes.c_int, [_POINTER, _U32, pointer(InterfaceState)]),
        ("rig_find_flow", _I32, [_POINTER, pointer(Flow)]),
        ("rig_flows", pointer(Flow), [_POINTER, pointer(_U32)]),
        ("rig_not_listed", _U64, [_POINTER]),
        ("rig_put", ctypes.c_int, [_POINTER, pointer(Columns), pointer(Row)]),
        ("rig_read_pcapng", ctypes.c_int, [_POINTER, _POINTER, _U64, pointer(Cursor), pointer(Columns)]),
        ("rig_tokens_v2", _U64, [pointer(Payloads), _POINTER, pointer(TokenColumns)]),
        ("rig_arrays_directory", ctypes.c_int, [ctypes.c_char_p]),
        ("rig_read_pcap", ctypes.c_int, [_POINTER, _POINTER, _U64, pointer(Cursor), pointer(Columns)]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
