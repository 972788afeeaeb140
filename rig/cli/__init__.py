"""`rig`: check plans, run them, judge records and captures, flash a board, keep an emulated bench up.

One module a group of commands, each with an `add_to` that describes them to argparse; what they need is imported when
one of them runs. `exit_codes` says how all of them end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO, cast

from rig.cli.exit_codes import ERROR, INTERRUPTED, OK, USAGE, exit_code
from rig.cli.output import Output
from rig.cli.parser import make_parser
from rig.errors import BenchError, PlanError, RigError, UsageError
from rig.interrupts import ENDINGS, interrupt
from rig.terminal import printable

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
    out, err = Output(sys.stdout), Output(sys.stderr)
    with contextlib.redirect_stdout(cast("TextIO", out)), contextlib.redirect_stderr(cast("TextIO", err)):
        code = _carry_out(arguments)
        missing = out.settle()
        if missing is not None:
            print(f"rig: the output is not complete: {missing}", file=sys.stderr)
            code = code if code != OK or arguments.keeps_records else ERROR
        err.settle()
    return code


def _tell(error: RigError) -> None:
    """What was seen may be a board's or a foreign record's text."""
    print(*map(printable, str(error).splitlines()), sep="\n", file=sys.stderr)


def _carry_out(arguments: argparse.Namespace) -> int:
    try:
        return int(arguments.command(arguments))
    except (UsageError, PlanError) as error:
        _tell(error)
        return USAGE
    except RigError as error:
        _tell(error)
        # A bench file with faults is wrong; a bench that is busy, or not as its file says, is an error of the bench.
        return USAGE if isinstance(error, BenchError) and error.faults else ERROR
    except KeyboardInterrupt:
        kept = "; the bench is released and the record so far can be read" if arguments.keeps_records else ""
        print(f"interrupted{kept}", file=sys.stderr)
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - told with its place
        # Python would end with 1, which says FAIL.
        traceback.print_exc()
        print("this is a defect of the rig: the lines above are for who mends it", file=sys.stderr)
        return ERROR
