"""How long `rig triage` takes, page and annotated capture included: 10,000 and 1,000,000 packets.

    python benchmarks/triage.py [PACKETS ...]

Each capture is made in a temporary folder and triaged by the command line in a process of its own. The bounds: 3 s for
10,000 packets and 15 s for 1,000,000; exit code 1 when one is missed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from traffic import write_tokens

BOUNDS_S = {10_000: 3.0, 1_000_000: 15.0}


def main() -> int:
    missed = 0
    for packets in [int(text) for text in sys.argv[1:]] or list(BOUNDS_S):
        with tempfile.TemporaryDirectory(prefix="rig-triage-") as scratch:
            capture = Path(scratch) / "made.pcapng"
            write_tokens(capture, packets)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = time.monotonic()
            subprocess.run(
                [sys.executable, "-m", "rig.cli", "triage", str(capture)], check=True, stdout=subprocess.DEVNULL
            )
            took = time.monotonic() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            page = (Path(scratch) / "made.triage" / "report.html").stat().st_size
            processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            bound = BOUNDS_S.get(packets)
            late = bound is not None and took > bound
            missed += late
            print(
                f"{packets:>9,} packets, {capture.stat().st_size / 1e6:6.1f} MB: {took:6.2f} s wall, "
                f"{processor:6.2f} s processor, {after.ru_maxrss >> 10} MiB, page {page / 1e6:.1f} MB"
                + ("" if bound is None else f"  bound {bound:g} s" + ("  MISSED" if late else ""))
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
