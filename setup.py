"""Builds the capture kernel. Without a C compiler the rest installs all the same and the plain reader is used."""

import zlib
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("rig/_native")
# In the order of rig._native.SOURCES.
SOURCES = ("kernel.h", "state.h", "flows.c", "decode.c", "records.c", "tokens.h", "tokens.c", "arrays.h", "arrays.c")

checksum = 0
for name in SOURCES:
    checksum = zlib.crc32((NATIVE / name).read_bytes(), checksum)

setup(
    ext_modules=[
        # A plain shared library, loaded with ctypes: no Python headers are needed.
        Extension(
            "rig._native.kernel",
            sources=[str(NATIVE / name) for name in SOURCES if name.endswith(".c")],
            depends=[str(NATIVE / name) for name in SOURCES],
            define_macros=[("RIG_SOURCES", f"{checksum}u")],
            extra_compile_args=["-O2", "-std=c11"],
            optional=True,
        )
    ]
)
