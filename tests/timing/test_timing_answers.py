"""Which datagrams make an answer: gaps, ITL and TPOT of answers that were sent twice, interleaved or torn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from timing_captures import ADDRESSES, BOARD, BOOT, FLOWS, GAP, JETSON, MS, TO_LAST, Capture, S, each, plan_of, run

from rig.protocol import token_v2
from rig.protocol.token_v2 import ANSWER, FLAG_FIRST, FLAG_LAST, Header
from rig.timing.flows import Selection
from rig.timing.metrics import measure
from rig.timing.metrics.measurement import Measurement, Scene

WITHIN = {"gap": {"of": "answers", "within": "request_id"}}
ITL = {"itl": {"source": "wire", "of": "answers"}}
TPOT = {"tpot": {"source": "wire", "of": "answers"}}


def measured(capture: Capture, metric) -> Measurement:
    plan = plan_of({"it": metric}, flows=FLOWS)
    table = capture.table()
    selection = Selection(table, ADDRESSES)
    packets = {name: selection.packets(name, flow) for name, flow in plan.flows.items()}
    return measure(plan.checks["it"], Scene(packets, S, int(table.time_ns[-1])))


def datagram(sequence: int, request_id: int, flags: int, tokens: int = 1, boot: int = BOOT) -> bytes:
    header = Header(type=ANSWER, flags=flags, request_id=request_id, sequence=sequence, boot_id=boot)
    return token_v2.encode(header, token_v2.encode_tokens(range(tokens)))


def test_an_answer_that_is_sent_again_is_an_answer_of_its_own() -> None:
    capture = Capture()
    for index in range(3):
        asked = index * 100 * MS
        capture.request(asked, index + 1, tokens=4)
        for begin in (asked + MS, asked + 50 * MS) if index == 1 else (asked + MS,):
            capture.answer(begin, index + 1, flags=FLAG_FIRST, tokens=2)
            capture.answer(begin + MS, index + 1, flags=FLAG_LAST, tokens=2)
    capture.arp(3 * S, 2, BOARD, JETSON)
    checks = {name: (metric, [each(5 * MS)]) for name, metric in (("gap", WITHIN), ("itl", ITL), ("tpot", TPOT))}
    result = run(capture, {**checks, "response": (TO_LAST, [each(5 * MS)])})
    assert [(str(check.verdict), check.n) for check in result.checks] == [("PASS", 4)] * 3 + [("PASS", 3)]


@pytest.mark.parametrize("torn", ["last of the first", "first of the second"])
def test_one_torn_edge_does_not_join_two_answers(torn: str) -> None:
    capture = Capture()
    for at, flags, sequence in ((0, FLAG_FIRST, 0), (1, 0, 1), (2, FLAG_LAST, 2), (50, FLAG_FIRST, 3), (51, 0, 4)):
        if (torn, sequence) not in {("last of the first", 2), ("first of the second", 3)}:
            capture.answer(at * MS, 1, flags=flags, sequence=sequence)
    assert max(measured(capture, WITHIN).value_ns.tolist()) == 1 * MS


def test_a_datagram_that_was_overtaken_stays_in_its_answer() -> None:
    capture = Capture()
    for at, flags, sequence in (
        (0, FLAG_FIRST, 0),
        (2, FLAG_LAST, 2),
        (3, 0, 1),
        (9, FLAG_FIRST, 3),
        (10, FLAG_LAST, 4),
    ):
        capture.answer(at * MS, 1, flags=flags, sequence=sequence)
    assert measured(capture, WITHIN).value_ns.tolist() == [2 * MS, 1 * MS, 1 * MS]
    assert measured(capture, TPOT).value_ns.tolist() == [1_500_000, 1 * MS]


def test_equal_ids_of_two_clients_are_two_answers() -> None:
    capture = Capture()
    for sequence, (at, client, flags) in enumerate(
        ((0, 40000, FLAG_FIRST), (1, 40001, FLAG_FIRST), (4, 40000, FLAG_LAST), (9, 40001, FLAG_LAST))
    ):
        capture.udp(at * MS, BOARD, JETSON, 5005, client, datagram(sequence, 1, flags))
    assert measured(capture, WITHIN).value_ns.tolist() == [4 * MS, 8 * MS]


def test_tpot_needs_both_ends_of_an_answer_but_not_a_token_in_them() -> None:
    capture = Capture()
    capture.answer(10 * MS, 1, flags=0, tokens=1)
    capture.answer(20 * MS, 1, flags=FLAG_LAST, tokens=1)
    capture.answer(100 * MS, 2, flags=FLAG_FIRST, tokens=0)
    capture.answer(101 * MS, 2, flags=0, tokens=2)
    capture.answer(103 * MS, 2, flags=0, tokens=2)
    capture.answer(104 * MS, 2, flags=FLAG_LAST, tokens=0)
    capture.answer(200 * MS, 3, flags=FLAG_FIRST, tokens=0)
    capture.answer(201 * MS, 3, flags=FLAG_LAST, tokens=0)
    capture.answer(300 * MS, 4, flags=FLAG_FIRST, tokens=0)
    capture.answer(301 * MS, 4, flags=FLAG_LAST, tokens=3)
    capture.answer(400 * MS, 5, flags=FLAG_FIRST, tokens=3)
    result = measured(capture, TPOT)
    assert result.value_ns.tolist() == [666_667]  # 2 ms / 3, rounded up
    assert (result.reference.tolist(), result.number.tolist()) == ([4], [5])
    assert result.counts == {
        "answers without their first datagram": 1,
        "answers without their last datagram": 1,
        "answers without tokens": 1,
        "answers of one datagram": 1,
    }


@pytest.mark.parametrize("seed", range(30))
def test_gaps_are_those_of_the_answers_that_were_sent(seed: int) -> None:
    """Ids come again, clients interleave, inner datagrams are lost, copied and overtaken; both ends always arrive."""
    rng = random.Random(seed)
    capture = Capture()
    queues = {client: [] for client in (40000, 40001)}
    for client, queue in queues.items():
        for number in range(rng.randrange(6)):
            length = rng.choice((1, 2, 3, 5))
            flags = [(FLAG_FIRST if i == 0 else 0) | (FLAG_LAST if i == length - 1 else 0) for i in range(length)]
            queue += [((client, number), rng.choice((1, 2)) if i == 0 else None, flag) for i, flag in enumerate(flags)]
    arrivals: dict[tuple[int, int], list[int]] = {}
    at, sequence, request_id = 0, rng.choice((0, 2**32 - 3)), {}
    while any(queues.values()):
        client = rng.choice([client for client, queue in queues.items() if queue])
        answer, chosen, flags = queues[client].pop(0)
        request_id[answer] = chosen or request_id[answer]
        payload = datagram(sequence & 0xFFFF_FFFF, request_id[answer], flags)
        at, sequence = at + rng.randrange(1, 9) * 10, sequence + 1
        if flags == 0 and rng.random() < 0.3:
            continue
        late = at + rng.randrange(40) if rng.random() < 0.3 else at
        capture.udp(late, BOARD, JETSON, 5005, client, payload)
        arrivals.setdefault(answer, []).append(late)
        if rng.random() < 0.3:
            capture.udp(late + rng.randrange(100), BOARD, JETSON, 5005, client, payload)
    if not capture.frames:
        return
    expected = [after - before for times in map(sorted, arrivals.values()) for before, after in pairwise(times)]
    assert sorted(measured(capture, WITHIN).value_ns.tolist()) == sorted(expected)


# --- gaps of the flow -------------------------------------------------------------------------------------------------


def test_gaps_of_a_flow_go_from_client_to_client() -> None:
    capture = Capture()
    for index in range(6):
        capture.udp(index * 10 * MS, BOARD, JETSON, 5005, 40000 + index % 2, datagram(index, 1, FLAG_FIRST))
    assert measured(capture, GAP).value_ns.tolist() == [10 * MS] * 5


def test_there_is_no_gap_from_boot_to_boot_of_one_sender() -> None:
    capture = Capture()
    for index, (at, boot) in enumerate(((0, 1), (3, 1), (500, 2), (504, 2), (505, 1), (510, 2))):
        capture.answer(at * MS, index, sequence=index, boot=boot)
    assert measured(capture, GAP).value_ns.tolist() == [3 * MS, 4 * MS, 1 * MS, 5 * MS]


def test_another_sender_of_the_flow_ends_a_gap() -> None:
    capture = Capture()
    for index, (at, port, boot) in enumerate(((0, 40000, 1), (7, 40001, 2), (9, 40000, 1), (20, 40001, 2))):
        capture.udp(at * MS, JETSON, BOARD, port, 5005, datagram(index // 2, index, FLAG_FIRST, boot=boot))
    assert measured(capture, {"gap": {"of": "requests"}}).value_ns.tolist() == [7 * MS, 2 * MS, 11 * MS]
