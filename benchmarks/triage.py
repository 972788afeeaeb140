"""How long `rig triage` takes, page and annotated capture included: 10,000 and 1,000,000 packets.

    python benchmarks/triage.py [PACKETS ...]

Each capture is made in a temporary folder and triaged by the command line in a process of its own: once as a bare
capture, once as a run record with its plan, whose Jetson wrote a request and an answer for every two packets. The
bounds: 3 s for 10,000 packets and 15 s for 1,000,000; exit code 1 when one is missed.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from traffic import BOARD, JETSON, T0_NS, write_tokens

from rig.record import Phase, RunInfo, to_json

BOUNDS_S = {10_000: 3.0, 1_000_000: 15.0}
PLAN = """\
plan: made
inference: {{mode: request, requests: {requests}, load: {{open: {{every: 1 ms}}}}}}
flows:
  requests: {{from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}}
  answers: {{from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}}
checks:
  answer-time:
    response_time: {{request: requests, response: answers, match: request_id}}
    limits: {{p50: {{max: 50 us}}, p99: {{max: 100 us}}}}
  no-loss: {{loss: {{of: requests, answered_by: answers}}, limits: {{count: {{max: 0}}}}}}
  in-order: {{reordering: {{of: answers}}, limits: {{count: {{max: 0}}}}}}
"""
EVENTS = (
    '{"request_id":%(id)d,"sequence":%(id)d,"warmup":false,"intended_ns":%(t)d,"pre_start_ns":%(t)d,"pre_end_ns":%(t)d,'
    '"post_end_ns":%(t)d,"send_ns":%(t)d,"sent_ns":%(t)d,"tokens":8,"bytes":88,"prefill_start_ns":%(t)d,'
    '"first_token_ns":%(t)d,"decode_end_ns":%(t)d,"token_ns":[%(t)d,%(t)d],"event":"request","t_ns":%(t)d}\n'
    '{"tokens":16,"warmup":false,"duplicate":false,"type":2,"flags":2,"request_id":%(id)d,"sequence":%(id)d,'
    '"boot_id":7,"recv_ns":%(t)d,"kernel_ns":%(t)d,"t_rx_ns":%(t)d,"t_ready_ns":%(t)d,"t_send_ns":%(t)d,'
    '"t_queued_ns":8437,"bytes":116,"event":"answer","t_ns":%(t)d}\n'
)


def main() -> int:
    missed = 0
    for packets in [int(text) for text in sys.argv[1:]] or list(BOUNDS_S):
        with tempfile.TemporaryDirectory(prefix="rig-triage-") as scratch:
            record = Path(scratch, "001-made")
            record.mkdir()
            capture = record / "capture.pcapng"
            write_tokens(capture, packets)
            _complete(record, packets)
            bare = Path(scratch, "made.pcapng")
            bare.hardlink_to(capture)
            for path, kind in ((bare, "capture"), (record, "record")):
                missed += _measure(path, kind, packets)
    return int(missed > 0)


def _measure(path: Path, kind: str, packets: int) -> bool:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    load, start = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rig.cli", "triage", str(path)], stdout=subprocess.PIPE, text=True, check=False
    )
    took = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    page = path.with_name(f"{path.name}.triage") / "report.html"
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    bound = BOUNDS_S.get(packets)
    late = bound is not None and took > bound
    print(
        f"{packets:>9,} packets, {kind:<7}: {took:6.2f} s wall, {processor:6.2f} s processor, "
        f"page {page.stat().st_size / 1e6:.1f} MB, load {load:.1f}, {done.stdout.splitlines()[0][:60]}"
        + ("" if bound is None else f"  bound {bound:g} s" + ("  MISSED" if late else "")),
        flush=True,
    )
    return late


def _complete(record: Path, packets: int) -> None:
    """What a run leaves beside its capture."""
    requests = packets // 40 * 8  # of the pairs in `traffic` the plan looks at the first alone
    plan = PLAN.format(requests=requests)
    (record / "plan.yaml").write_text(plan)
    with (record / "jetson.jsonl").open("w") as stream:
        stream.write('{"spec":{"mode":"request","every_ns":1000000},"event":"spec","t_ns":0}\n')
        for number in range(1, packets // 2 + 1):
            stream.write(EVENTS % {"id": number, "t": 946_262_480_835 + 1_000_000 * number})
        counts = f'{{"requests_sent":{requests},"answers_unique":{int(requests * 0.999)}}}'
        stream.write(f'{{"reason":"done","counts":{counts},"sentinels":{{}},"boot_ids":[7],"event":"end","t_ns":1}}\n')
    (record / "board.log").write_text("0.100000000 link up\n0.200000000 ready\n")
    started = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(T0_NS // 10**9))
    info = RunInfo(
        run_id="set/001-made", set_id="set", plan_file="made.plan.yaml",
        plan_sha256=hashlib.sha256(plan.encode()).hexdigest(), point="", expanded_sha256="", plan_name="made",
        started_utc=started, outcome="completed", phases=[Phase("traffic", 0, 10**9, 10**10, "ok")],
    )  # fmt: skip
    info.bench = {
        "bench": "made", "profile": "emulated", "capture": {"point": "inline"}, "uncertainty": {"e_ns": 1_000},
        "board": {"identity": {"address": BOARD}, "banner": None}, "jetson": {"bench_address": JETSON},
    }  # fmt: skip
    interface = {"name": "port", "dropped": 0, "file_dropped": 0, "dropped_nic": 0, "counters": {}}
    info.capture = {"ended": "stopped", "drained": "end-sentinel", "faults": [], "interfaces": [interface]}
    info.board = {"boot": {"build": "aa"}, "observations": []}
    (record / "run.json").write_bytes(to_json(asdict(info)))


if __name__ == "__main__":
    sys.exit(main())
