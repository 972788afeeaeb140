"""What the runner is told: one frozen value, sent as one line of JSON. docs/jetson.md describes each field."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import Final

from rig.bench.model import Bench
from rig.errors import PlanError
from rig.plan.model import Inference

REQUEST_TOKENS: Final = {"token-v1": 732, "token-v2": 354}
"""Most prompt tokens that a request can carry without IP fragments: 1472 bytes less header and answer count."""

GIVE_UP_S: Final = 10.0
"""A closed load ends early when nothing was answered for so long: more than a board takes to reboot with its link."""
PREPARE_S: Final = 900.0
"""Of the runner's own deadline: engine load, and waiting for flash, capture, boot and network before `go`."""
TOKEN_S: Final = 0.05
"""Slowest decode step that a bound allows for."""


@dataclass(frozen=True)
class RunnerSpec:
    """Everything the runner needs. Durations ns, `deadline_s` s from its start.

    every_ns: open load's period, push mode's interval, 0 with closed load. model: path on the Jetson, None where
    nothing is inferred (push mode, no tokens to decode). board: address and UDP port.
    """

    run_id: str
    owner: str
    host: str
    mode: str
    protocol: str
    board: tuple[str, int]
    bind: str
    model: str | None
    requests: int
    warmup: int
    prompt_tokens: int
    infer_tokens: int
    answer_tokens: int
    timeout_ns: int
    every_ns: int
    in_flight: int
    think_ns: int
    give_up_ns: int
    seed: int
    deadline_s: float

    def to_line(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"


def make_spec(inference: Inference, bench: Bench, *, run_id: str, owner: str) -> RunnerSpec:
    """The spec of a plan's inference on a bench. PlanError for what cannot be sent."""
    most = REQUEST_TOKENS[inference.protocol]
    if inference.prompt_tokens > most:
        raise PlanError(
            f"inference.prompt_tokens is {inference.prompt_tokens}; a {inference.protocol} request holds at most {most}"
        )
    opened, closed = inference.load.open, inference.load.closed
    push = inference.mode == "push"
    if push and opened is None:
        raise PlanError("mode: push needs an interval", hint="write `load: {open: {every: 10 ms}}`")
    if push and inference.protocol != "token-v2":
        raise PlanError("mode: push needs protocol token-v2: a push of token-v1 does not say where it ends")
    decodes = not push and inference.infer_tokens > 0
    return RunnerSpec(
        run_id=run_id,
        owner=owner,
        host=socket.gethostname(),
        mode=inference.mode,
        protocol=inference.protocol,
        board=(bench.board.identity.address, bench.board.identity.port),
        bind=bench.jetson.bench_address,
        model=f"{bench.jetson.model_dir.rstrip('/')}/{inference.model}.onnx" if decodes else None,
        requests=inference.requests,
        warmup=inference.warmup,
        prompt_tokens=inference.prompt_tokens,
        infer_tokens=inference.infer_tokens if decodes else 0,
        answer_tokens=inference.answer_tokens,
        timeout_ns=inference.timeout,
        every_ns=opened.every if opened else 0,
        in_flight=closed.in_flight if closed else 1,
        think_ns=closed.think if closed else 0,
        give_up_ns=int(GIVE_UP_S * 1e9),
        seed=1,
        deadline_s=PREPARE_S + traffic_bound_s(inference),
    )


def traffic_bound_s(inference: Inference) -> float:
    """The longest that a sound runner needs from `go` to `done`, were every answer lost: the budget of that phase."""
    timeout_s = inference.timeout / 1e9
    pipeline_s = inference.infer_tokens * TOKEN_S if inference.mode == "request" else 0.0
    warmup_s = inference.warmup * (timeout_s + pipeline_s)
    sentinels_s = 2 * 20 * 0.05
    if inference.load.open is not None:
        load_s = inference.requests * max(inference.load.open.every / 1e9, pipeline_s) + timeout_s
    else:
        closed = inference.load.closed
        in_flight, think_s = (closed.in_flight, closed.think / 1e9) if closed else (1, 0.0)
        load_s = -(-inference.requests // in_flight) * (timeout_s + think_s) + inference.requests * pipeline_s
    return warmup_s + sentinels_s + load_s + 10.0
