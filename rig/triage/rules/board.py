"""The board as a whole: silent, restarted, or slow by its own stamps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rig.errors import RigError
from rig.plan.units import format_ns
from rig.triage.armv8m import FaultDump, read_fault
from rig.triage.diagnosis import Clue, Rule, Support
from rig.triage.rules.outage import outages
from rig.triage.rules.plan import declared_ns

if TYPE_CHECKING:
    from rig.triage.case import Case


def _observed(case: Case, kind: str) -> list[str]:
    board = case.info.board if case.info is not None else {}
    return [str(one.get("detail", "")) for one in board.get("observations", []) if one.get("kind") == kind]


def _faults(case: Case) -> list[str]:
    """What the board said of a fault, as the run observed it; else, when it restarted, as its console's log has it."""
    restarts = _observed(case, "reboot")
    told = _observed(case, "fault") + [text for text in restarts if "FAULT" in text]
    return told or [text for _, text in case.board_lines if restarts and text.startswith("FAULT ")]


def silent(case: Case) -> Support | None:
    """It hears (ARP is answered, requests arrive) and never answers, however long the capture waits."""
    exchanges = case.exchanges
    clues, against = [], []
    if exchanges is None or not case.expects_answers or exchanges.push:
        return None
    asks = exchanges.asks
    if not len(asks) or len(exchanges.answers) or asks.time_ns[0] + case.timeout_ns > case.table.time_ns[-1]:
        return None
    clues.append(Clue(f"none of {len(asks)} requests was answered", case.numbers(asks.row, 4)))
    board = case.addresses["board"]
    heard = [one for one in case.arp if one.target == board and one.reply_ns is not None]
    spoke = np.array([key.src == board for key in case.table.flows] + [False], np.bool_)
    frames = np.flatnonzero(spoke[case.table.flow])
    # Captures of other protocols are often of one direction only, which looks the same.
    score = 0.6 if exchanges.known or case.info is not None else 0.45
    if heard or len(frames):
        score = 0.9
    if heard:
        clues.append(Clue("the board answers ARP: its network runs", tuple(one.number for one in heard[:3])))
    elif len(frames):
        clues.append(Clue(f"the board sends other frames ({len(frames)}): its network runs", case.numbers(frames, 3)))
    else:
        against.append(Clue("the board sent no frame at all"))
    counters = case.info.board.get("counters", {}) if case.info is not None else {}
    if counters.get("rx_requests"):
        clues.append(Clue(f"its own counter says that {counters['rx_requests']} requests reached its service"))
        score = 0.95
    if case.undelivered:
        score = min(score, 0.4)
        against.append(Clue("ICMP errors came instead of answers"))
    return Support(score, tuple(clues), tuple(against))


def no_boot(case: Case) -> Support | None:
    seen = _observed(case, "no-boot")
    return Support(0.95, tuple(Clue(text) for text in seen[:3])) if seen else None


def _restart(case: Case) -> list[Clue]:
    boots = case.boots
    if len(boots) < 2 or case.exchanges is None:
        earlier = _boot_change_seen(case)
        return [earlier] if earlier else []
    boot = case.exchanges.answers.boot.astype(np.int64)
    at = np.flatnonzero(np.diff(boot)) + 1
    return [
        Clue(
            f"the board's datagrams carry {len(boots)} boot ids ({', '.join(f'{one:08x}' for one in boots[:4])}): "
            "it restarted while packets were measured",
            case.numbers(case.exchanges.answers.row[at]),
        )
    ]


def _boot_change_seen(case: Case) -> Clue | None:
    """Sentinels carry the boot id too: a board that restarted before its first answer."""
    tokens = case.selection.v2.tokens
    board = case.addresses.get("board")
    mine = np.array([key.src == board for key in case.table.flows] + [False], np.bool_)
    at = np.flatnonzero(mine[case.table.flow[tokens.row]])
    if not len(at):
        return None
    change = np.flatnonzero(np.diff(tokens.boot_id[at].astype(np.int64))) + 1
    if not len(change):
        return None
    ids = ", ".join(f"{one:08x}" for one in dict.fromkeys(int(x) for x in tokens.boot_id[at]))
    return Clue(f"the board's boot id changes ({ids}): it restarted", case.numbers(tokens.row[at[change]]))


def crash(case: Case) -> Support | None:
    faults = _faults(case)
    clues = _restart(case)
    if not faults and not clues:
        return None
    if not faults:
        note = (Clue("no console shows whether it faulted or was reset"),)
        return Support(0.85 if case.info is None else 0.4, tuple(clues), note)
    said = [Clue("the console says: " + text[:160]) for text in faults[:2]]
    dump = read_fault(faults[0])
    if dump is not None and dump.sentence:
        said.append(Clue(f"its fault status says {dump.sentence}"))
    return Support(0.97, (*said, *clues), experiment=_after_fault(case, faults[0], dump))


def _after_fault(case: Case, line: str, dump: FaultDump | None) -> str:
    """The step that leads from a FAULT line to the source."""
    if dump is None:
        at = re.search(r"FAULT assert (\S+?:\d+)", line)
        return f"read the source at {at[1]}: the condition there did not hold" if at else ""
    firmware = case.info.firmware if case.info is not None else {}
    build, variant = str(firmware.get("build_id") or ""), str(firmware.get("variant") or "")
    elf = _elf(build, variant)
    command = shlex.join(["arm-none-eabi-addr2line", "-f", "-e", str(elf or "app.elf"), *map(hex, dump.addresses)])
    of = f"build {build[:12]}" if build else "the build that ran"
    which = "" if elf is not None else f", app.elf being the ELF file of {of}"
    return f"see in the source where it stood, pc and then its caller{which}: `{command}`"


def _elf(build: str, variant: str) -> Path | None:
    """This project's ELF file of a variant, if it still is the build that ran."""
    from rig.board.image import load_image
    from rig.project import FIRMWARE

    path = FIRMWARE / variant / "app.elf"
    if not build or not re.fullmatch(r"[a-z0-9_]+", variant) or not path.is_file():
        return None
    try:
        return path if load_image(path, 0).build_id == build else None
    except RigError:
        return None


def reboot(case: Case) -> Support | None:
    resets = [text for text in _observed(case, "reboot") if "FAULT" not in text]
    clues = _restart(case)
    if not resets and not clues:
        return None
    said = [Clue("the console says: " + text[:160]) for text in resets[:2]]
    if _faults(case):
        return Support(0.3, tuple(clues), (Clue("it faulted first"),))
    score = 0.95 if resets else 0.8
    return Support(score, (*said, *clues))


def stopped(case: Case) -> Support | None:
    """It answered for a while, then never again: descriptors leaked, a semaphore lost, a pool exhausted, a hang."""
    exchanges = case.exchanges
    if exchanges is None or not len(exchanges.answers):
        return None
    last = [gap for gap in outages(case) if gap.ends_the_capture]
    if not last or last[0].unanswered < 5:
        return None
    board = case.addresses["board"]
    mine = np.array([key.src == board for key in case.table.flows] + [False], np.bool_)
    frames = int(np.count_nonzero(mine[case.table.flow]))
    clues = [
        Clue(
            f"after {frames} frames the board says nothing more; {last[0].unanswered} requests follow",
            last[0].frames,
        )
    ]
    if frames & (frames - 1) == 0:
        clues.append(Clue(f"{frames} is a power of two, as rings of descriptors are"))
    return Support(0.85, tuple(clues), (), f"after {frames} frames")


def slow_inference(case: Case) -> Support | None:
    """t_ready − t_rx is far beyond what the plan declares for the NPU."""
    exchanges = case.exchanges
    if exchanges is None or case.point is None or not len(exchanges.answered):
        return None
    npu = case.point.plan.npu
    answers = exchanges.answers
    first = exchanges.first[exchanges.first >= 0]
    spent = (answers.t_ready_ns[first] - answers.t_rx_ns[first])[answers.t_ready_ns[first] > 0]
    if not len(spent):
        return None
    declared = npu.first_token + npu.per_token * min(npu.tokens_per_datagram, case.point.plan.inference.answer_tokens)
    usual = int(np.median(spent))
    load = case.point.plan.inference.load
    # From t_rx on a request waits for those before it, where the plan lets them queue.
    if load.closed is not None:
        queued = load.closed.in_flight > 1
    else:
        queued = load.open is not None and declared_ns(case.point.plan) >= load.open.every
    if queued or usual < 2 * declared + case.noise_ns:
        return None
    clue = Clue(
        f"from request to first result the board takes {format_ns(usual)} (median), the plan declares "
        f"{format_ns(declared)}",
        case.numbers(answers.row[first], 4),
    )
    return Support(0.85, (clue,), (), format_ns(usual), round(float(np.percentile(spent, 90))))


def slow_send(case: Case) -> Support | None:
    """t_send − t_ready: the result waits in the board before it is handed to the stack."""
    exchanges = case.exchanges
    if exchanges is None or not exchanges.stamped or not len(exchanges.answered):
        return None
    answers = exchanges.answers
    known = np.flatnonzero((answers.t_ready_ns > 0) & (answers.t_send_ns > 0) & answers.first)
    if not len(known):
        return None
    waited = answers.t_send_ns[known] - answers.t_ready_ns[known]
    usual = int(np.median(waited))
    if usual < case.noise_ns:
        return None
    clue = Clue(
        f"between the result and its send call the board spends {format_ns(usual)} (median)",
        case.numbers(answers.row[known], 4),
    )
    return Support(0.85, (clue,), (), format_ns(usual), round(float(np.percentile(waited, 90))))


RULES = (
    Rule(
        "board-no-boot",
        "board",
        "board",
        "The board did not boot",
        "board silent",
        "power-cycle it and read its console from the first byte; flash a known good variant",
        no_boot,
    ),
    Rule(
        "board-silent",
        "board",
        "board",
        "The board receives requests and answers none",
        "board silent",
        "ask its console for `counters`: do rx_requests and tx_answers grow? break in the receive callback",
        silent,
    ),
    Rule(
        "board-crash",
        "board",
        "board",
        "The firmware crashed and restarted",
        "board restarted",
        "read the FAULT line on its console, and resolve its pc and lr: `arm-none-eabi-addr2line -f -e app.elf PC LR`",
        crash,
    ),
    Rule(
        "board-reboot",
        "board",
        "board",
        "The board was reset or lost power",
        "board restarted",
        "look at the `reset=` cause of the banner after it; watch the supply, and who else drives the reset line",
        reboot,
    ),
    Rule(
        "board-stopped",
        "board",
        "board",
        "The board stopped sending for good",
        "board stops after some frames",
        "ask its console for `counters`: a full transmit ring points to descriptors that are never given back",
        stopped,
    ),
    Rule(
        "board-slow-inference",
        "board",
        "board",
        "The board's inference takes longer than the plan declares",
        "long t_ready - t_rx",
        "run the plan with a trivial prompt, then with `npu` times as measured",
        slow_inference,
    ),
    Rule(
        "board-slow-send",
        "board",
        "board",
        "The result waits in the board before it is sent",
        "long t_send - t_ready",
        "switch logging off and raise the network thread's priority, one at a time",
        slow_send,
    ),
)
