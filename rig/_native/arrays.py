"""Large NumPy arrays in files, for captures of gigabytes: judging them then costs little anonymous memory.

NumPy lets its allocator be replaced (NEP 49). The one here maps an unlinked temporary file for every array of 1 MiB or
more, so that the system can write out what does not fit into memory.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Final

from rig import _native

_SET_HANDLER: Final = 304
"""Index of PyDataMem_SetHandler in NumPy's C API table, fixed by its ABI since 1.22."""


class _Allocator(ctypes.Structure):
    """PyDataMemAllocator"""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))


class _Handler(ctypes.Structure):
    """PyDataMem_Handler"""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator))


_kept: list[Any] = []
"""The handler in use: arrays refer to it as long as they live, so it is never given up."""


def keep_large_arrays_in_files(directory: str) -> bool:
    """From now on new arrays of 1 MiB or more that this thread makes are mapped files in `directory`.

    False where there is no kernel.
    """
    library = _native.load()
    if library is None:
        return False
    if library.rig_arrays_directory(directory.encode()) != 0:
        return False
    if not _kept:
        _install(library)
    return True


def _install(library: ctypes.CDLL) -> None:
    numpy_core = importlib.import_module("numpy._core._multiarray_umath")

    functions = [
        ctypes.cast(getattr(library, f"rig_arrays_{name}"), ctypes.c_void_p).value
        for name in ("malloc", "calloc", "realloc", "free")
    ]
    handler = _Handler(b"rig_arrays", 1, _Allocator(None, *functions))
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name = b"mem_handler"  # PyCapsule_New keeps the pointer.
    capsule = api.PyCapsule_New(ctypes.addressof(handler), name, None)
    table = api.PyCapsule_GetPointer(numpy_core._ARRAY_API, None)
    entry = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(entry)
    _kept.extend((handler, name, capsule, library))
    set_handler(capsule)
