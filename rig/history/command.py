"""`rig history`: asks the index, makes it again, or lets old captures go."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from rig.errors import UsageError
from rig.terminal import printable

if TYPE_CHECKING:
    from rig.history.series import Bias, Settled, Standing

DAY_MS: Final = 86_400_000
EXAMPLES: Final = """  rig history                                  every check on every bench, the troubled ones first
  rig history answer-time --bench lab-3        one check (or plan), night by night
  rig history --since 30d --json
  rig history rebuild                          make the index again from all verdicts.json
  rig history prune --older-than 14 --max-size 50"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="CHECK|PLAN", help="or `rebuild`, `prune`; without it: everything")
    parser.add_argument("--bench", metavar="NAME", help="only this bench, by its name in the records")
    parser.add_argument("--since", metavar="WHEN", help="only results since: 30d, 12h or 2026-01-31")
    parser.add_argument("--json", action="store_true", help="print rig.history/1 (docs/history.md)")
    parser.add_argument("--records", "--record-dir", dest="record_dir", metavar="DIR", help="Default: captures")
    prune = parser.add_argument_group("prune", "removes captures, never verdicts; failing runs keep theirs longer")
    prune.add_argument("--older-than", type=amount, default=30, metavar="DAYS", help="Default: 30")
    prune.add_argument("--failing-older-than", type=amount, default=180, metavar="DAYS", help="Default: 180")
    prune.add_argument("--max-size", type=amount, metavar="GB", help="oldest go first until the rest fits")
    prune.add_argument("--dry-run", action="store_true", help="say what would go and keep it")


def amount(text: str) -> float:
    """A number that is not negative, as `--older-than` and the like take it."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is no amount; write a number such as 30 or 0.5")


def run(arguments: argparse.Namespace, records: Path) -> None:
    """Answer one question. Raises UsageError for one that names what is not there, else InternalError."""
    if not records.is_dir():
        raise UsageError(f"there are no records in {records}", hint="run a plan first, or name a folder: --records DIR")
    if arguments.name == "rebuild":
        return _rebuild(records)
    if arguments.name == "prune":
        return _prune(arguments, records)
    return _show(arguments, records)


def _show(arguments: argparse.Namespace, records: Path) -> None:
    import json
    from datetime import UTC, datetime

    from rig.history.index import index_path, update
    from rig.history.questions import ahead, parse_since, standings
    from rig.history.schema import connect
    from rig.history.table import bias_lines, detail, document, overview

    _complain(update(records).unread)
    now = datetime.now(UTC)
    since = parse_since(arguments.since, now) if arguments.since else 0
    until = round(now.timestamp() * 1000) + DAY_MS
    with connect(index_path(records)) as connection:
        _complain(ahead(connection, until))
        brief = arguments.name is None
        asked = standings(connection, arguments.name, arguments.bench, since_ms=since, until_ms=until, brief=brief)
        found = list(asked)
    bias = {} if brief else _bias(found)
    if arguments.json:
        print(json.dumps(document(found, bias), indent=1, ensure_ascii=False))
        return
    if not found:
        print("no results" + (f" since {arguments.since}" if arguments.since else " yet"))
        return
    _print(overview(found))
    if arguments.name is None:
        return
    for check, biases in bias.items():
        print()
        _print(bias_lines(check, biases))
    for one in found:
        print()
        _print(detail(one))


def _bias(found: Sequence[Standing]) -> Mapping[str, Sequence[Bias]]:
    """Check → biases of its benches, where at least two benches measured on the same day."""
    from rig.history.series import biases

    checks: dict[str, dict[str, Standing]] = {}
    for one in found:
        checks.setdefault(one.key.name, {})[one.key.bench] = one
    several = {name: benches for name, benches in checks.items() if len(benches) > 1}
    each = {
        name: biases({bench: one.settled for bench, one in benches.items()}, _day) for name, benches in several.items()
    }
    return {name: one for name, one in each.items() if one}


def _day(settled: Settled) -> int:
    return settled.result.started_ms // DAY_MS


def _rebuild(records: Path) -> None:
    from rig.history.index import index_path, rebuild

    done = rebuild(records)
    _complain(done.unread)
    print(f"{index_path(records)}: {done.runs} runs")


def _prune(arguments: argparse.Namespace, records: Path) -> None:
    import time

    from rig.history.prune import captures, chosen, remove
    from rig.record import set_folders

    _print((f"not looked at: {path}: this user may not read it" for path in set_folders(records)[1]), sys.stderr)
    limit = None if arguments.max_size is None else int(arguments.max_size * 1e9)
    found = list(captures(records))
    now_ms = time.time_ns() // 1_000_000
    gone = chosen(found, now_ms, days=arguments.older_than, failing_days=arguments.failing_older_than, max_bytes=limit)
    for one in gone:
        print(f"{'would remove' if arguments.dry_run else 'removed'}  {one.size / 1e6:9.1f} MB  {one.run}")
        if not arguments.dry_run:
            remove(one, now_ms)
    freed = sum(one.size for one in gone)
    print(f"captures of {len(gone)} of {len(found)} runs, {freed / 1e6:.1f} MB; verdicts and logs stay")


def _complain(unread: Iterable[str]) -> None:
    _print((f"not in the history: {what}" for what in unread), sys.stderr)


def _print(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """What records say may come from a board or another lab: it is shown, and never drives the terminal."""
    for line in lines:
        print(printable(line), file=stream)
