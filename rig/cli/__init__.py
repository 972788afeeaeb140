"""`rig`: check plans, run them, judge records and captures, flash a board, keep an emulated bench up.

One module a group of commands, each with an `add_to` that describes them to argparse; what they need is imported when
one of them runs. `exit_codes` says how all of them end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from rig.cli.exit_codes import ERROR, INTERRUPTED, OK, USAGE, exit_code
from rig.cli.parser import make_parser
from rig.errors import BenchError, PlanError, RigError
from rig.interrupts import ENDINGS, interrupt

__all__ = ["exit_code", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    # NumPy's threads for vectors of this size cost more than they save, most of all on a busy bench host.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = make_parser().parse_args(argv)
    for signum in ENDINGS:
        # `nohup rig nightly &` is to outlive its terminal.
        if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, interrupt)
    try:
        return int(arguments.command(arguments))
    except (PlanError, BenchError) as error:
        print(error, file=sys.stderr)
        return USAGE if error.faults else ERROR
    except RigError as error:
        print(error, file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be what was lost
            print("interrupted; the bench is released and the record so far can be read", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `rig … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
