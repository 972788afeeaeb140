"""After a reset in the middle of traffic the board is back on the wire soon, as the same host, by itself.

A plan cannot reset its board while packets flow; here a test has the bench's parts in its own hands.
"""

from __future__ import annotations

import queue

import numpy as np
import pytest

from rig.deadline import Deadline
from rig.jetson.session import RemoteProcess
from rig.protocol import token_v2
from rig.timing.arp import unanswered
from rig.timing.table import PROTO_UDP, FrameTable

OUTAGE_NS = {"emulated": 5_000_000_000, "hardware": 6_000_000_000}
"""Longest silence. On hardware a PHY alone negotiates for up to 3 s, and a switch may learn anew."""
ANSWERS = 20
PATIENCE_S = 60

# Runs on the Jetson with its own Python (3.6 or later): asks the board every 10 ms and prints the boot id of each
# answer. Ends when nobody reads that any more, at the latest after PATIENCE_S.
ASK = f"""
import socket, sys, time
bind, host, port, question = sys.argv[1:]
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind((bind, 0))
link.connect((host, int(port)))
link.settimeout(0.01)
end = time.monotonic() + {PATIENCE_S}
while time.monotonic() < end:
    try:
        link.send(bytes.fromhex(question))
        answer = link.recv(2048)
    except OSError:
        continue
    print(answer[15:11:-1].hex(), flush=True)
    time.sleep(0.01)
"""


def wait_for_answers(asking: RemoteProcess, boot_id: str | None, deadline: Deadline) -> str:
    """Wait for ANSWERS answers of one boot, of any if `boot_id` is None; returns its boot id."""
    seen = 0
    while seen < ANSWERS:
        try:
            line = asking.lines.get(timeout=deadline.left())
        except queue.Empty:
            line = None
        assert line is not None, f"the board gave {seen} of {ANSWERS} answers{f' after boot {boot_id}' * bool(boot_id)}"
        seen += boot_id in (None, line.decode())
    return line.decode()


def answers_of(table: FrameTable, address: str, port: int) -> np.ndarray:
    """Times (ns) at which a datagram from the board's service was on the wire."""
    flows = [
        index
        for index, flow in enumerate(table.flows)
        if flow.proto == PROTO_UDP and flow.src == address and flow.srcport == port
    ]
    return table.time_ns[np.isin(table.flow, flows)]


@pytest.mark.requirement(id="NET-21")
@pytest.mark.firmware(variant="zero_copy")
def test_board_answers_again_soon_after_a_reset(bench, board, jetson, capture) -> None:
    identity = bench.bench.board.identity
    probe = token_v2.encode(token_v2.Header(type=token_v2.SENTINEL, request_id=0xFFFF_FFFF - token_v2.SENTINEL_PROBE))
    python = bench.bench.jetson.python.removeprefix("~/")
    who = [bench.bench.jetson.bench_address, identity.address, str(identity.port)]
    budget = Deadline.after(PATIENCE_S)
    asking = jetson.start([python, "-c", ASK, *who, probe.hex()], budget)
    try:
        first = wait_for_answers(asking, None, budget)
        boot = board.reset_and_boot(budget)
        board.prove_identity()
        assert boot.boot_id != first, "the reset did not reset the board"
        wait_for_answers(asking, boot.boot_id, budget)
    finally:
        asking.close()

    table = capture.stop()
    answers = answers_of(table, identity.address, identity.port)
    outage_ns = int(np.diff(answers).max())
    limit_ns = OUTAGE_NS[bench.bench.profile]
    assert outage_ns <= limit_ns, f"silent for {outage_ns / 1e6:.1f} ms; at most {limit_ns / 1e6:.0f} ms"
    for who, address in (("board", identity.address), ("Jetson", bench.bench.jetson.bench_address)):
        assert not len(unanswered(table, address)), f"nobody answers ARP for the {who}"
    assert not board.observations(), "the board restarted once more, or faulted"
