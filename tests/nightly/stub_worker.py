"""Stands in for `rig.nightly.worker`: how each attempt ends is in a JSON file, what was asked goes to another.

{"health": [[faults], …], "runs": {plan: [verdict, …]}}: one entry an attempt, the last one goes on for ever; what a
plan's comparisons come to is under `plan::`, what one point does under `plan[point]`. A verdict is `PASS`, `FAIL`,
`INCONCLUSIVE capture-loss`, `ERROR board`, `PASS` with the seconds that it takes, `hang`, `die`, or `stuck`: hangs and
does not end when told to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

settings = json.loads(sys.argv[-1])
script = json.loads(Path(os.environ["STUB_SCRIPT"]).read_text())
log = Path(os.environ["STUB_LOG"])


def asked(what: str) -> int:
    """Notes it; how often it was asked before, by all workers of this bench."""
    line = f"{Path(settings['bench']).stem} {what}"
    before = log.read_text().splitlines().count(line) if log.exists() else 0
    with log.open("a") as stream:
        print(line, file=stream)
    return before


for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "health":
        told = script.get("health", {}).get(Path(settings["bench"]).stem, [[]])
        answer = {"faults": told[min(asked("health"), len(told) - 1)]}
    else:
        plan = Path(command["plan"]).name
        if command["do"] == "compare":
            plan += "::"
        elif command["point"]:
            plan += f"[{command['point']}]"
        turns = script["runs"].get(plan, ["PASS"])
        verdict, _, kind = turns[min(asked(plan), len(turns) - 1)].partition(" ")
        if verdict == "stuck":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if verdict == "PASS" and kind:
            time.sleep(float(kind))
        if verdict in ("hang", "stuck"):
            sys.stdin.read()
        if verdict == "die":
            os._exit(9)
        answer = {
            "verdict": verdict,
            "sentence": f"{verdict}: {kind or 'as it is'}",
            "side": kind if verdict == "ERROR" else "",
            "findings": [kind] if verdict == "INCONCLUSIVE" else [],
            "record": settings["instance"],
        }
    print(json.dumps(answer), flush=True)
