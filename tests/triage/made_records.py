"""Run records made by hand around a synthetic capture: what a run leaves, without a bench."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wire_captures import BOARD, JETSON, MS, RUNNER, T0, Wire, talk

from rig.record import Phase, RunInfo, to_json

PLAN = """\
plan: made
description: {description}
inference: {{mode: request, requests: {requests}, timeout: 300 ms, load: {{open: {{every: 8 ms, overrun: 100 %}}}}}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time:
    response_time: {{request: requests, response: answers, match: request_id, to: last}}
    limits: {{p50: {{max: {limit}}}}}
  no-loss:
    loss: {{of: requests, answered_by: answers}}
    limits: {{count: {{max: 0}}}}
{more}"""


def make_record(
    folder: Path,
    seed: int = 1,
    make: Callable[[Wire], Any] = lambda wire: talk(wire, 200),
    *,
    description: str = "Made for a test.",
    limit: str = "4 ms",
    requests: int = 200,
    more: str = "",
    log: Sequence[str] = ("rig-fw variant=zero_copy build=00", "link up", "ready"),
    observations: Sequence[dict[str, Any]] = (),
    variant: str = "zero_copy",
    build: str = "aa11",
    outcome: str = "completed",
    received: int | None = None,
    duplicates: int = 0,
    counters: dict[str, int] | None = None,
) -> Path:
    """A record in `folder`. more: lines at the end of the plan, which are checks as long as they are indented.
    received, duplicates: what the Jetson says it got; None: every answer in the capture."""
    folder.mkdir(parents=True)
    wire = Wire(seed)
    make(wire)
    wire.write(folder / "capture.pcapng")
    plan = PLAN.format(description=json.dumps(description), limit=limit, requests=requests, more=more)
    (folder / "plan.yaml").write_text(plan)
    (folder / "bench.yaml").write_text("bench: made\n")
    (folder / "board.log").write_text("".join(f"{0.1 * i:.9f} {line}\n" for i, line in enumerate(log)))
    answers = sum(frame[26:30] == bytes(map(int, BOARD.split("."))) for _, frame in wire.frames) - 5
    asked = [at for at, frame in sorted(wire.frames) if frame[26:30] == bytes(map(int, JETSON.split(".")))][4:-1]
    events: list[dict[str, Any]] = [
        {"event": "spec", "t_ns": 0, "spec": {"mode": "request", "every_ns": 8 * MS}},
        {"event": "clock", "t_ns": 1, "realtime_ns": T0 + 1, "width_ns": 100},
    ]
    for number, at in enumerate(asked, 1):
        begin = at - 2 * MS
        events.append(
            {
                "event": "request", "t_ns": at, "request_id": number, "sequence": number + 3, "warmup": False,
                "intended_ns": at, "pre_start_ns": begin, "pre_end_ns": begin + 50_000,
                "prefill_start_ns": begin + 50_000, "first_token_ns": begin + 400_000,
                "decode_end_ns": begin + 700_000, "post_end_ns": begin + 720_000, "send_ns": at, "sent_ns": at + 9_000,
            }
        )  # fmt: skip
    counts = {"requests_sent": len(asked), "answers_unique": answers if received is None else received}
    counts["duplicates"] = duplicates
    events.append(
        {
            "event": "end", "t_ns": 10**10, "reason": "done", "counts": counts,
            "sentinels": {"start": True, "end": True}, "boot_ids": [RUNNER],
        }
    )  # fmt: skip
    (folder / "jetson.jsonl").write_text("".join(json.dumps(e, separators=(",", ":")) + "\n" for e in events))
    frames = len(wire.frames)
    info = RunInfo(
        run_id=f"set/{folder.name}",
        set_id="set",
        plan_file="made.plan.yaml",
        plan_sha256=hashlib.sha256(plan.encode()).hexdigest(),
        point="",
        expanded_sha256="0" * 64,
        plan_name="made",
        started_utc="2023-11-14T22:13:19.000Z",
        outcome=outcome,
        bench={
            "bench": "made",
            "profile": "emulated",
            "board": {"identity": {"address": BOARD}, "banner": None},
            "jetson": {"bench_address": JETSON},
            "capture": {"point": "inline"},
            "uncertainty": {"declared": "50 us", "e_ns": 50_000, "note": "declared"},
        },
        controller={"version": "0.1.0", "commit": "c0ffee", "dirty": False},
        firmware={
            "variant": variant, "file": "app.bin", "sha256": "5" * 64, "build_id": build, "flash": {"verified": True},
        },
        phases=[Phase("preflight", 0, 10**8, 10**9, "ok", "fine"), Phase("traffic", 10**9, 10**9, 10**10, "ok")],
        capture={
            "ended": "stopped", "drained": "end-sentinel", "faults": [], "frames": frames, "carrier": [],
            "sentinels": [], "duplicates": False, "wire": True, "stamps": "bridge port",
            "interfaces": [{
                "name": "port", "dropped": 0, "file_dropped": 0, "dropped_nic": 0, "counters": {}, "direction": "both",
            }],
        },
        clock={"largest_step_ns": 10},
        board={"boot": {"build": build}, "observations": list(observations), "counters": counters or {}},
        jetson={"engine": {"engine": "onnxruntime", "engine_version": "1.0", "provider": "CPUExecutionProvider"}},
    )  # fmt: skip
    (folder / "run.json").write_bytes(to_json(asdict(info)))
    return folder


def change_run(record: Path, **changes: Any) -> Path:
    """The record with other values in its run.json."""
    info = json.loads((record / "run.json").read_text())
    (record / "run.json").write_text(json.dumps({**info, **changes}))
    return record


def tell_host(record: Path, t_ns: int, **state: Any) -> None:
    """Append what the Jetson says of itself at `t_ns`; state: what differs from a host that says nothing."""
    silent = {"when": "now", "load": [], "temperature_c": {}, "cooling": {}, "power_mw": {}, "over_current": {},
              "governor": None, "cpu_khz": None, "cpu_max_khz": None, "gpu_load": None, "memory_kib": {}}  # fmt: skip
    with (record / "jetson.jsonl").open("a") as log:
        log.write(json.dumps({"event": "host", "t_ns": t_ns, **silent, **state}) + "\n")
