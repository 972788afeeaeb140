"""Command line of `rig nightly`; apart from the rest, since `rig --help` must not load all of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

EXAMPLES: Final = """  rig nightly                                         all plans in testplans/ on one emulated bench
  rig nightly --parallel 2 --budget 6h                on two emulated benches at once
  rig nightly testplans/ --bench benches/lab-1.yaml --bench benches/lab-2.yaml
  rig nightly --resume                                go on with a night that was cut off
  rig nightly --report                                the page of the last 24 hours, whatever became of the night"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plans", nargs="*", type=Path, metavar="PLAN", help="plan files or folders (Default: testplans)"
    )
    parser.add_argument("--bench", action="append", metavar="FILE", help="may be repeated; every plan runs on each")
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="instances of each emulated bench that share its plans"
    )
    parser.add_argument("--budget", type=seconds, default=8 * 3600.0, metavar="TIME", help="of the night (Default: 8h)")
    parser.add_argument(
        "--run-budget", type=seconds, default=1800.0, metavar="TIME", help="of one run (Default: 30min)"
    )
    parser.add_argument("--quarantine", type=Path, metavar="FILE", help="Default: quarantine.yaml where there is one")
    parser.add_argument("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--resume", action="store_true", help="go on with the night that was cut off, if there is one")
    what.add_argument("--report", action="store_true", help="run nothing: write the page of the last 24 hours again")


def seconds(text: str) -> float:
    """`6h`, `90min`, `45s` as seconds."""
    for unit, size in (("min", 60), ("h", 3600), ("m", 60), ("s", 1)):
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal():
            return float(number) * size
    raise argparse.ArgumentTypeError(f"{text!r} is no time; write 6h, 90min or 45s")
