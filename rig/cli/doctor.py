"""`rig doctor`: what is wrong with a bench, and how to repair it."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from rig.cli.commands import Commands, bench_option, bench_path, records, records_option
from rig.cli.exit_codes import ERROR, OK

if TYPE_CHECKING:
    from rig.bench.checks import Finding
    from rig.bench.doctor import Check


def add_to(commands: Commands) -> None:
    command = commands.add(
        "doctor",
        _doctor,
        "examine the bench: what is wrong, and the command that repairs it",
        "  rig doctor\n  rig doctor --bench benches/lab-3.yaml\n  rig doctor --json | jq '.checks[] | select(.fix)'",
    )
    records_option(command)
    command.add_argument("--json", action="store_true", help="print everything as JSON (rig.doctor/1)")
    bench_option(command)


def _doctor(arguments: argparse.Namespace) -> int:
    import json

    from rig.bench.checks import Site
    from rig.bench.doctor import EXAMINATION_S, examine, rendered, report
    from rig.deadline import Deadline
    from rig.project import ROOT
    from rig.session import Rig

    rig = Rig.of(bench_path(arguments))
    site = Site(ROOT, records(arguments), rig.file, rig.name, Deadline.after(EXAMINATION_S), opener=rig)
    results: list[tuple[Check, Finding]] = []
    with contextlib.closing(examine(site)) as examination:
        for check, finding in examination:
            results.append((check, finding))
            if not arguments.json:
                print(rendered(check, finding, colour=sys.stdout.isatty()), flush=True)
    if arguments.json:
        print(json.dumps(report(site, results), indent=2, ensure_ascii=False))
    else:
        states = [finding.state for _, finding in results]
        counts = {state: states.count(state) for state in ("ok", "warn", "fail", "skipped")}
        print(", ".join(f"{n} {state}" for state, n in counts.items() if n))
    return ERROR if any(finding.state == "fail" for _, finding in results) else OK
