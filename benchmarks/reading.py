"""How fast captures are judged, beside everything else that reads them: one run, one table, results checked.

    ./bench python benchmarks/reading.py                 a few minutes
    ./bench python benchmarks/reading.py --frames 100000 --times 3

The job: response times, losses and gaps of eight flows with exact percentiles. Each program is measured as a whole
process with the file cached, median of several, and given the largest file that it finishes within a minute (slow ones
once). `rig judge` also judges evidence, limits and confidence. Printed: frames per second, and how many times as fast
as `tshark -T fields` that is; `equal` says that the results are those of single_pass.c, to the nanosecond. Those of
dpkt cannot be: it hands times over as floating-point seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import traffic

HERE: Final = Path(__file__).parent
SLOWEST_S: Final = 60.0
SIZES: Final = (2_000, 20_000, 100_000, 1_000_000)
PIP: Final = {"pyshark": "pyshark", "scapy": "scapy", "dpkt": "dpkt", "python-pcapng": "python-pcapng"}
MODULES: Final = {"pyshark": "pyshark", "scapy": "scapy", "dpkt": "dpkt", "python-pcapng": "pcapng"}


@dataclass(frozen=True)
class Peer:
    """A program to measure. lines: what single_pass.c would have printed, out of its output; None: it computes
    nothing."""

    name: str
    argv: Callable[[Path], Sequence[str]]
    lines: Callable[[str], list[str]] | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Measured:
    """One row of the table."""

    frames: int
    seconds: list[float]
    verdict: str

    @property
    def rate(self) -> float:
        return self.frames / statistics.median(self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=SIZES[-1], help="of the largest capture (Default: 1000000)")
    parser.add_argument("--times", type=int, default=7, help="runs of each program (Default: 7)")
    parser.add_argument("--large", type=float, metavar="GB", help="also judge a capture of so many gigabytes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rig-reading-", dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        single_pass = _compile(folder)
        plans = {kind: folder / f"{kind}.plan.yaml" for kind in ("three", "all", "smallest")}
        plans["three"].write_text(plan(every_metric=False))
        plans["all"].write_text(plan(every_metric=True))
        plans["smallest"].write_text(SMALLEST)
        files = {}
        for size in sorted({min(size, arguments.frames) for size in SIZES}):
            files[size] = folder / f"{size}.pcapng"
            traffic.write_tokens(files[size], size)
        smallest = folder / "smallest.pcapng"
        traffic.write_smallest(smallest, arguments.frames)
        few = folder / "few.pcapng"
        traffic.write_tokens(few, 200)

        print(f"{_bytes(files[max(files)])} in {max(files)} frames; {os.cpu_count()} cores\n")
        rows = [(peer.name, _measure(peer, files, single_pass, arguments.times)) for peer in _peers(single_pass, plans)]
        _print(rows)

        extra = [
            ("all metrics", _judge("all metrics", plans["all"]), files[max(files)], max(files)),
            ("minimum-size frames", _judge("smallest", plans["smallest"]), smallest, arguments.frames),
            ("200 frames", _judge("few", plans["three"]), few, 200),
        ]
        print()
        for title, peer, path, frames in extra:
            done = _repeat(peer, path, frames, arguments.times)
            print(f"rig judge, {title:<22} {statistics.median(done.seconds):8.3f} s  {done.rate / 1e6:7.3f} M frames/s")
        _print_reading(smallest, arguments.frames, arguments.times)
        if arguments.large:
            _large(folder, arguments.large, plans["three"])


def plan(*, every_metric: bool) -> str:
    """A plan over the flows of `traffic`, as text."""
    flows, checks = [], []
    for pair in traffic.PAIRS:
        board, jetson = (traffic.BOARD6, traffic.JETSON6) if pair.version == 6 else ("board", "jetson")
        vlan = "" if pair.vlan is None else f", vlan: {pair.vlan}"
        requests, answers = f"requests-{pair.name}", f"answers-{pair.name}"
        udp = {requests: f"from: '{jetson}', to: '{board}', udp.dstport: {pair.port}",
               answers: f"from: '{board}', to: '{jetson}', udp.srcport: {pair.port}"}  # fmt: skip
        flows += [f"  {name}: {{{ends}{vlan}, protocol: token-v2}}" for name, ends in udp.items()]
        exchange = f"{{request: {requests}, response: {answers}, match: request_id, to: last}}"
        checks += [
            (f"response-{pair.name}", "response_time", exchange, _TIMES),
            (f"loss-{pair.name}", "loss", f"{{of: {requests}, answered_by: {answers}}}", _RATIO),
            (f"gap-{requests}", "gap", f"{{of: {requests}, within: flow}}", _TIMES),
            (f"gap-{answers}", "gap", f"{{of: {answers}, within: flow}}", _TIMES),
        ]
        if not every_metric:
            continue
        for of, opposite in ((requests, answers), (answers, requests)):
            for metric, more, limits in _OTHERS:
                checks.append((f"{metric}-{of}".replace("_", "-"), metric, f"{{of: {of}{more}}}", limits))
            if pair.version == 4:  # The clock of the bench's own board alone is aligned with the capture's.
                delay = f"{{of: {of}, opposite: {opposite}}}"
                checks.append((f"one-way-{of}", "one_way_delay", delay, _TIMES))
        if pair.version == 4:
            checks.append((f"turnaround-{answers}", "turnaround", f"{{of: {answers}, stage: send}}", _TIMES))
    told = [f"  {name}:\n    {metric}: {what}\n    limits: {limits}" for name, metric, what, limits in checks]
    return "\n".join([_HEAD, "flows:", *flows, "checks:", *told, ""])


_TIMES: Final = "{p50: {max: 50 ms}, p99: {max: 100 ms}}"
_RATIO: Final = "{ratio: {max: 1 %}}"
_OTHERS: Final = (
    ("duplicates", "", _RATIO),
    ("reordering", "", _RATIO),
    ("ipdv", "", _TIMES),
    ("pdv", "", _TIMES),
    ("jitter", "", "{each: {max: 1 s}}"),
    ("burst", ", within: 1 ms", "{packets: {max: 1000}}"),
    ("throughput", ", per: 10 ms", "{rate: {max: 1 Gbit/s}}"),
)
"""(metric, its further keys, limits)"""

_HEAD: Final = """\
plan: reading
firmware: {variant: zero_copy}
inference: {mode: request, requests: 1000, load: {closed: {in_flight: 1}}}"""
SMALLEST: Final = f"""\
{_HEAD}
flows:
  there: {{from: '{traffic.JETSON}', to: '{traffic.BOARD}', udp.dstport: 5005}}
  back: {{from: '{traffic.BOARD}', to: '{traffic.JETSON}', udp.srcport: 5005}}
checks:
  gap-there:
    gap: {{of: there, within: flow}}
    limits: {{p99: {{max: 100 ms}}}}
  gap-back:
    gap: {{of: back, within: flow}}
    limits: {{p99: {{max: 100 ms}}}}
"""


def _peers(single_pass: Path, plans: dict[str, Path]) -> list[Peer]:
    def other(name: str) -> Peer:
        return Peer(name, lambda path: [sys.executable, str(HERE / "peers.py"), name, str(path)], str.splitlines)

    return [
        other("tshark-fields"),
        Peer("cat", lambda path: ["cat", str(path)]),
        Peer("capinfos -c", lambda path: ["capinfos", "-c", str(path)]),
        Peer("single_pass.c", lambda path: [str(single_pass), str(path)], str.splitlines),
        _judge("rig judge", plans["three"]),
        _judge("rig judge, plain reader", plans["three"], RIG_NATIVE="0"),
        *(other(name) for name in ("tshark-ek", "pyshark", "scapy", "dpkt", "python-pcapng")),
    ]


def _judge(name: str, plan_file: Path, **environment: str) -> Peer:
    return Peer(
        name,
        lambda path: [str(_rig()), "judge", str(path), "--plan", str(plan_file), "--json"],
        _lines_of_verdicts,
        environment,
    )


def _rig() -> Path:
    return Path(sys.executable).with_name("rig")


def _lines_of_verdicts(output: str) -> list[str]:
    lines = []
    for check in json.loads(output)["checks"]:
        summary: dict[str, Any] | None = check["summary"]
        if summary is None:
            lost = check["limits"][0]["beyond"] + check["limits"][0]["open"]
            lines.append(f"{check['check']} {check['n']} {lost}")
            continue
        quantiles = [quantile["value_ns"] for quantile in summary["quantiles"] if quantile["name"] in _QUANTILES]
        longest = summary["max_ns"]
        words = [check["check"], summary["n"], summary["lost"], summary["min_ns"], *quantiles, longest]
        lines.append(" ".join(str(word) for word in words))
    return lines


_QUANTILES: Final = ("p50", "p90", "p99")


def _compile(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("there is no C compiler for single_pass.c, which everything is compared with")
    program = folder / "single_pass"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "single_pass.c"], check=True)
    return program


def _measure(peer: Peer, files: dict[int, Path], single_pass: Path, times: int) -> Measured | str:
    """Its row, on the largest file that it will finish in time; or why there is none."""
    missing = _missing(peer)
    if missing:
        return missing
    sizes = sorted(files)
    chosen = sizes[0]
    for at, size in enumerate(sizes):
        tried = _repeat(peer, files[size], size, 1)
        chosen = size
        # The start of the process counts less on a larger file, so this estimate is a high one.
        if at + 1 == len(sizes) or sizes[at + 1] / size * tried.seconds[0] > SLOWEST_S:
            break
    if tried.seconds[0] * times < SLOWEST_S:
        tried = _repeat(peer, files[chosen], chosen, times)
    if peer.lines is not None:
        wanted = _output([single_pass, files[chosen]], {}).splitlines()
        given = peer.lines(_output(peer.argv(files[chosen]), peer.environment))
        tried.verdict = "equal" if sorted(_comparable(given)) == sorted(_comparable(wanted)) else "NOT EQUAL"
    return tried


def _comparable(lines: list[str]) -> list[str]:
    """The longest of the answered ones counts; where one was lost, some say that the longest took for ever."""
    cut = []
    for line in lines:
        words = line.split()
        cut.append(" ".join(words[:-1] if len(words) == 8 and words[2] != "0" else words))
    return cut


def _missing(peer: Peer) -> str:
    module = MODULES.get(peer.name)
    if module is not None:
        found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False)
        return "" if found.returncode == 0 else f"not installed: pip install {PIP[peer.name]}"
    program = "tshark" if peer.name.startswith("tshark") else peer.name.split()[0]
    if program in ("cat", "capinfos", "tshark") and shutil.which(program) is None:
        return "not installed: sudo apt-get install --no-install-recommends tshark"
    return ""


def _repeat(peer: Peer, path: Path, frames: int, times: int) -> Measured:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        process = subprocess.Popen(
            list(peer.argv(path)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **peer.environment},
        )
        process.wait()
        seconds.append(time.perf_counter() - began)
    return Measured(frames, seconds, "-")


def _output(argv: Sequence[str | Path], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.stdout


def _print(rows: list[tuple[str, Measured | str]]) -> None:
    baseline = rows[0][1]
    yardstick = next(row for name, row in rows if name == "single_pass.c")
    assert isinstance(yardstick, Measured)
    print(f"{'program':<26} {'frames':>8} {'runs':>4} {'median s':>9} {'frames/s':>11} {'x tshark':>9} "
          f"{'C takes 1/':>10}  result")  # fmt: skip
    for name, row in rows:
        if isinstance(row, str):
            print(f"{name:<26} {row}")
            continue
        ratio = f"{row.rate / baseline.rate:9.2f}" if isinstance(baseline, Measured) else " " * 9
        print(
            f"{name:<26} {row.frames:>8} {len(row.seconds):>4} {statistics.median(row.seconds):9.3f} "
            f"{row.rate:11.0f} {ratio} {yardstick.rate / row.rate:10.2f}  {row.verdict}"
        )


def _print_reading(path: Path, frames: int, times: int) -> None:
    """The reader alone, within a process."""
    from rig.capture.reader import read_capture

    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        read_capture(path)
        seconds.append(time.perf_counter() - began)
    rate = frames / statistics.median(seconds) / 1e6
    print(f"reading alone, minimum-size frames   {statistics.median(seconds):8.3f} s  {rate:7.3f} M frames/s")


def _large(folder: Path, gigabytes: float, plan_file: Path) -> None:
    path = folder / "large.pcapng"
    frames = int(gigabytes * 1e9 / 215.3)
    traffic.write_tokens(path, frames)
    argv = [str(_rig()), "judge", str(path), "--plan", str(plan_file), "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")))
        except (FileNotFoundError, ProcessLookupError, TypeError):
            pass
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    print(
        f"rig judge, {_bytes(path)} in {frames} frames  {seconds:8.1f} s  {frames / seconds / 1e6:.3f} M frames/s"
        f"  peak anonymous memory {peak / 1024:.0f} MB"
    )


def _bytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
