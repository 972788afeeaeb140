"""What a run prints must never end it."""

from __future__ import annotations

import os
from pathlib import Path

from rig.progress import TextProgress


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
    finally:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), writer)  # so that closing can flush
        stream.close()
