"""How long `rig history` and the morning page take over a store of a million check results.

    .venv/bin/python benchmarks/history.py [--results 1000000] [--keep DIR]

Makes an index of 50 plans with 10 checks each on 5 benches, one run a night, as many nights as it takes, by the bulk
path (`rig.history.rows.run_row`, `rig.history.index.add_rows`): the rows are those of real records, only their folders
are empty. Then asks each question in a process of its own and prints its time.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rig.history.index import add_rows, index_path
from rig.history.rows import RunRow, run_row
from rig.history.schema import connect
from rig.record import RunInfo

PLANS, CHECKS, BENCHES = 50, 10, 5

QUESTIONS = {
    "one check": "history plan-7::check-3",
    "one plan": "history plan-7",
    "one check, one bench, JSON": "history check-3 --bench lab-2 --json",
    "one bench": "history --bench lab-2",
    "all troubles": "history",
    "all troubles, last 30 nights": "history --since {since}",
}


def nights(results: int) -> Iterator[list[RunRow]]:
    """The runs of one night after the other."""
    scatter = random.Random(1)
    count = results // (PLANS * CHECKS * BENCHES)
    for night in range(count):
        at = datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(days=night - count)
        yield [
            _run(scatter, night, at, f"plan-{plan}", f"lab-{bench}")
            for plan in range(PLANS)
            for bench in range(BENCHES)
        ]


def _run(scatter: random.Random, night: int, at: datetime, plan: str, bench: str) -> RunRow:
    set_id = f"{at:%Y%m%dT%H%M%SZ}-000000"
    info = RunInfo(
        run_id=f"{set_id}/{plan}-{bench}",
        set_id=set_id,
        plan_file="",
        plan_sha256="",
        point="",
        expanded_sha256="0",
        plan_name=plan,
        started_utc=at.isoformat(),
        outcome="completed",
        bench={"bench": bench},
        controller={"commit": f"{night // 7:040x}", "dirty": False},
        firmware={"sha256": f"{night // 7:064x}", "build_id": f"{night // 7:040x}"},
    )
    checks = [_check(scatter, number) for number in range(CHECKS)]
    verdicts = {"profile": "hardware", "verdict": "PASS", "e_ns": 1000, "findings": [], "checks": checks}
    return run_row(info, verdicts, (), "nightly", "bulk")


def _check(scatter: random.Random, number: int) -> dict[str, object]:
    value = round(scatter.gauss(1_500_000, 30_000))
    bad = scatter.random() < 0.002
    return {
        "check": f"check-{number}",
        "metric": "response_time",
        "verdict": "FAIL" if bad else "PASS",
        "reason": "p50 is over its limit" if bad else "every limit holds",
        "n": 600,
        "limits": [{"key": "p50", "rule": "p50 <= 5 ms", "limit_ns": 5_000_000, "beyond": 0}],
        "summary": {"min_ns": value, "max_ns": value, "quantiles": [{"name": "p50", "value_ns": value}]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="folder for the index; used again when there is one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        records = arguments.keep or Path(temporary)
        records.mkdir(exist_ok=True)
        began = time.monotonic()
        if not index_path(records).exists():
            with connect(index_path(records)) as connection:
                for rows in nights(arguments.results):
                    add_rows(connection, rows)
                    for row in rows:
                        (records / row.folder).mkdir(parents=True)
        with connect(index_path(records)) as connection:
            count = connection.execute("SELECT count(*) FROM results").fetchone()[0]
            last = connection.execute("SELECT max(started_ms) FROM runs").fetchone()[0]
        size = index_path(records).stat().st_size / 1e6
        print(f"{count} results, {size:.0f} MB, filled in {time.monotonic() - began:.1f} s")
        since = f"{datetime.fromtimestamp(last / 1000, UTC) - timedelta(days=30):%Y-%m-%d}"
        for name, words in QUESTIONS.items():
            _ask(name, ["-m", "rig.cli", *words.format(since=since).split(), "--records", str(records)])
        code = (
            "import sys, time; from pathlib import Path; from rig.nightly.command import morning_of;"
            "morning_of(Path(sys.argv[1]), Path(sys.argv[1]) / sys.argv[2])"
        )
        set_id = f"{datetime.fromtimestamp(last / 1000, UTC):%Y%m%dT%H%M%SZ}-000000"
        _ask("the morning page's data", ["-c", code, str(records), set_id])


def _ask(name: str, command: list[str]) -> None:
    took = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        took.append(time.monotonic() - began)
    print(json.dumps({"question": name, "best_s": round(min(took), 2), "worst_s": round(max(took), 2)}))


if __name__ == "__main__":
    main()
