"""`rig bench …`: keep an emulated bench up, disturb it, ask how it is, or calibrate a bench."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rig.cli.commands import Commands, bench_option, bench_path, records, records_option
from rig.cli.exit_codes import NOTHING, OK
from rig.errors import BenchError, PlanError

if TYPE_CHECKING:
    from rig.emulation.bench import EmulatedBench
    from rig.plan.model import Impairment


def add_to(commands: Commands) -> None:
    group = commands.group("bench", "keep an emulated bench up, ask how it is, or calibrate a bench")
    bench_option(group.add("up", _up, "bring the emulated bench up until Ctrl-C", "  rig bench up"))
    command = group.add(
        "impair",
        _impair,
        "let the relay of a bench that is up delay, lose, copy or reorder frames until Ctrl-C",
        "  rig bench impair 'delay: 5 ms'\n"
        "  rig bench impair 'direction: from-board, loss: 2 %' 'jitter: 1 ms, select: {udp.dstport: 5005}'",
    )
    command.add_argument("rules", nargs="+", metavar="RULE", help="keys of a plan's `impairment:`, see docs/plans.md")
    bench_option(command)
    bench_option(group.add("status", _status, "say what the bench is doing", "  rig bench status"))
    command = group.add(
        "calibrate",
        _calibrate,
        "find out how well the bench measures and keep it as its e",
        "  rig bench calibrate --bench benches/lab-3.yaml",
        keeps_records=True,
    )
    records_option(command)
    bench_option(command)


def _up(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import serve

    def ready(bench: EmulatedBench) -> None:
        resolved = bench.bench
        print(f"bench {resolved.bench!r} is up; other commands join it; Ctrl-C ends it")
        print(f"  serial console   {resolved.board.serial.port}")
        print(f"  board            {resolved.board.identity.address}")
        print(f"  Jetson           {resolved.jetson.user}@{resolved.jetson.host}:{resolved.jetson.port}")
        print(f"  capture          {resolved.capture.point} on {', '.join(resolved.capture.interfaces)}", flush=True)

    serve(load_bench(bench_path(arguments)), on_ready=ready)
    return OK


def _impair(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import open_bench, status

    file = load_bench(bench_path(arguments))
    rules = [_impairment(text) for text in arguments.rules]
    if status(file).state != "up":
        raise BenchError(f"bench {file.bench!r} is not up", hint="run `rig bench up` in another terminal first")
    with open_bench(file) as bench:
        bench.set_impairment([*(file.emulation.impairment if file.emulation else []), *rules])
        print(f"the relay of bench {file.bench!r} imposes {'; '.join(arguments.rules)}; Ctrl-C ends it", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            for name, value in _flat(bench.relay_counters()):
                print(f"  {name:<26} {value}")
    return OK


def _status(arguments: argparse.Namespace) -> int:
    from rig.bench.load import load_bench
    from rig.emulation.bench import status

    found = status(load_bench(bench_path(arguments)))
    print(f"bench {found.name!r} is {found.state}" + (f", {found.holder}" if found.holder else ""))
    for name, value in _flat(found.details):
        print(f"  {name:<26} {value}")
    return OK if found.state != "down" else NOTHING


def _calibrate(arguments: argparse.Namespace) -> int:
    from rig.bench.calibrate import render
    from rig.calibrating import calibrate
    from rig.progress import TextProgress
    from rig.session import Rig

    with Rig.of(bench_path(arguments)) as rig:
        command = ["rig", *sys.argv[1:]]
        found, path = calibrate(rig, records(arguments), command, TextProgress(sys.stdout))
        print()
        print(render(found, rig.bench.uncertainty.declared, emulated=rig.bench.profile == "emulated"))
        print(f"kept in {path} and used until capture point, NICs, their settings or kernel change")
    return OK


def _impairment(text: str) -> Impairment:
    """`direction: both, delay: 5 ms` as a plan's `impairment:` writes it."""
    from rig.plan.explain import build
    from rig.plan.model import Impairment
    from rig.plan.yaml_positions import read_document

    document = read_document(f"{{{text}}}".encode(), "RULE")
    rule, faults, _ = build(Impairment, document) if not document.faults else (None, list(document.faults), None)
    if rule is None:
        raise PlanError(f"RULE {text!r} is wrong", faults=faults)
    return rule


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values as dotted names, without the counters that never moved."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value != 0 or isinstance(value, bool):
            yield f"{prefix}{name}", value
