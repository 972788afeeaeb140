"""What a run prints must never end it."""

from __future__ import annotations

import io
import os
from pathlib import Path

from rig.progress import TextProgress


def test_a_warning_is_one_line_and_told_once() -> None:
    stream = io.StringIO()
    progress = TextProgress(stream)
    for text in ("disk: full", "disk: full", "clock: late"):
        progress.warn(text)
    assert stream.getvalue() == "  warning          disk: full\n  warning          clock: late\n"


def test_output_that_nobody_can_read_any_more_is_dropped() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    try:
        progress = TextProgress(stream)
        progress.run_begins("plan")
        progress.phase_begins("flash")
        progress.update("erase 1 of 4 sectors")
        progress.phase_ends("flash", 1.0, "ok", "written")
        progress.warn("disk: full")
    finally:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), writer)  # so that closing can flush
        stream.close()
