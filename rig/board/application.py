"""What this project's firmware is asked on its console (docs/architecture.md, "Console of our firmware")."""

from __future__ import annotations

from rig.board.console import Console
from rig.board.report import Push
from rig.deadline import Deadline
from rig.errors import BoardError
from rig.plan.model import Npu


def configure(console: Console, npu: Npu, deadline: Deadline, push: Push | None = None) -> None:
    """Set the scripted backend and, for push mode, what the next start sentinel sets off.

    Raises BoardError for times that are finer than the firmware's clock (1 us) or that it refuses.
    """
    first_us, token_us = _whole_us(npu.first_token), _whole_us(npu.per_token)
    console.command(f"npu first_us={first_us} token_us={token_us} chunk={npu.tokens_per_datagram}", deadline)
    if push is not None:
        every_us = _whole_us(push.every_ns)
        console.command(f"push every_us={every_us} count={push.count} tokens={push.tokens}", deadline)


def counters(console: Console, deadline: Deadline) -> dict[str, int]:
    """The firmware's counters by name. Raises BoardError when a line is not `counter <name>=<integer>`."""
    found = {}
    for line in console.command("counters", deadline):
        name, equals, value = line.removeprefix("counter ").partition("=")
        if not line.startswith("counter ") or not equals or not value.isdecimal():
            raise BoardError("the board's counters cannot be read", seen=line)
        found[name] = int(value)
    return found


def _whole_us(value_ns: int) -> int:
    if value_ns % 1000:
        raise BoardError(
            f"{value_ns} ns is finer than the firmware's clock", hint="give whole microseconds in the plan"
        )
    return value_ns // 1000
