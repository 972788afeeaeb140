"""Filters and fields of a plan's flows through the real tshark: aligned with our rows, refused where unknown."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_files import A4, B4, T0, ethernet, ipv4, pcap, tcp, udp

from rig.bench.load import load_bench
from rig.capture.columns import dissect_columns, wireshark_fault
from rig.capture.reader import read_capture
from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.judging import Capture, judge_capture
from rig.plan.load import load_plan
from rig.plan.model import Flow
from rig.protocol.token_v2 import ANSWER, REQUEST, Header, encode, encode_request, encode_tokens

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

BOARD, JETSON = "10.77.0.10", "10.77.0.20"
EMULATED = Path(__file__).parents[2] / "benches" / "emulated.yaml"
MS = 1_000_000


def flow(**keys: Any) -> Flow:
    return Flow.model_validate(keys)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DNS question with its answer, the ICMP error that quotes one, and a token exchange, out of order by time."""
    from scapy.layers.dns import DNS, DNSQR
    from scapy.layers.inet import ICMP, IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.utils import wrpcap

    question = IP(src=JETSON, dst=BOARD) / UDP(sport=4000, dport=53) / DNS(id=0x1234, qd=DNSQR(qname="x"))
    answer = IP(src=BOARD, dst=JETSON) / UDP(sport=53, dport=4000) / DNS(id=0x1234, qr=1, qd=DNSQR(qname="x"))
    quoted = IP(src=BOARD, dst=JETSON) / ICMP(type=3, code=3) / question
    ask = encode(Header(type=REQUEST, request_id=7, boot_id=1), encode_request(4, [1, 2]))
    say = encode(Header(type=ANSWER, request_id=7, boot_id=2), encode_tokens([5]))
    request = IP(src=JETSON, dst=BOARD) / UDP(sport=4001, dport=5005) / ask
    reply = IP(src=BOARD, dst=JETSON) / UDP(sport=5005, dport=4001) / say
    frames = []
    for at_s, packet in ((5, request), (1, question), (2, answer), (3, quoted), (6, reply)):
        frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet
        frame.time = at_s
        frames.append(frame)
    path = tmp_path_factory.mktemp("columns") / "some.pcap"
    wrpcap(str(path), frames)
    return path


def test_filters_and_fields_are_aligned_with_the_rows(capture: Path) -> None:
    table = read_capture(capture)
    assert table.number.tolist() == [2, 3, 4, 1, 5]
    flows = [
        flow(filter="dns.flags.response == 0", key={"field": "dns.id"}),
        flow(filter='dns && frame contains "x" && !icmp', key={"field": "dns.id"}),
        flow(filter="token.type == 1", key={"field": "token.request_id"}),
    ]
    found = dissect_columns(capture, table, flows, Deadline.after(30))
    assert found is not None
    # A filter is Wireshark's: the quoted question passes it too, and is left out by address and port.
    passes = {text: np.flatnonzero(mask).tolist() for text, mask in found.passes.items()}
    assert passes == {
        "dns.flags.response == 0": [0, 2],
        'dns && frame contains "x" && !icmp': [0, 1],
        "token.type == 1": [3],
    }
    ids, requests = dict(found.fields["dns.id"].tolist()), dict(found.fields["token.request_id"].tolist())
    assert sorted(ids) == [0, 1, 2]
    assert ids[0] == ids[1]
    assert sorted(requests) == [3, 4]
    assert requests[3] == requests[4] != ids[0]


RPC_PLAN = """\
plan: nfs
flows:
  requests: {filter: rpc.msgtyp == 0, key: {field: rpc.xid}}
  answers: {filter: rpc.msgtyp == 1, key: {field: rpc.xid}}
checks:
  answer-time:
    response_time: {request: requests, response: answers, match: key}
    limits: {each: {max: 15 ms}}
"""


def test_rpc_on_ports_of_its_own_is_found_and_judged(tmp_path: Path) -> None:
    """RPC is known by its looks: 78 calls, of which one took 20 ms and three went to a port that tshark knows."""
    frames = []
    for number in range(78):
        call = struct.pack(">6I", number, 0, 2, 100003, 2, 0) + bytes(16)
        reply = struct.pack(">3I", number, 1, 0) + bytes(12)
        port = 111 if number < 3 else 1023
        took_ns = 20 * MS if number == 50 else MS
        frames += [
            (number * 50 * MS, ethernet(ipv4(udp(call, sport=700, dport=port)))),
            (number * 50 * MS + took_ns, ethernet(ipv4(udp(reply, sport=port, dport=700), src=B4, dst=A4))),
        ]
    path, plan = tmp_path / "rpc.pcap", tmp_path / "rpc.plan.yaml"
    path.write_bytes(pcap(*((T0 + at, frame) for at, frame in frames)))
    plan.write_text(RPC_PLAN)
    plan_file = load_plan(plan)
    result = judge_capture(Capture(path), plan_file, plan_file.points[0], load_bench(EMULATED))
    (check,) = result.checks
    assert (str(check.verdict), check.n) == ("FAIL", 78)
    assert [violation.value_ns for violation in check.violations] == [20 * MS]


def test_rpc_of_a_public_capture_is_judged_as_tshark_has_it(samples: Path, tmp_path: Path) -> None:
    """tshark: 78 pairs, 0 to 20 ms, mean 1.667 ms."""
    plan = tmp_path / "rpc.plan.yaml"
    plan.write_text(RPC_PLAN)
    plan_file = load_plan(plan)
    path = samples / "rpc-nfs-bigendian.pcap"
    (check,) = judge_capture(Capture(path), plan_file, plan_file.points[0], load_bench(EMULATED)).checks
    assert check.summary is not None
    assert (str(check.verdict), check.n, check.summary.min_ns, check.summary.max_ns) == ("FAIL", 78, 0, 20 * MS)
    table = read_capture(path)
    found = dissect_columns(path, table, plan_file.points[0].plan.flows.values(), Deadline.after(30))
    assert found is not None
    assert [int(mask.sum()) for mask in found.passes.values()] == [78, 78]


def test_a_payload_that_looks_like_quic_is_data_where_a_plan_asks_for_data(tmp_path: Path) -> None:
    """The first is a token datagram's neighbour on a port of its own; only `data` is not guessed at."""
    stolen, call = b"\x04\0\0\0\3" + bytes(59), struct.pack(">6I", 7, 0, 2, 100003, 2, 0) + bytes(16)
    frames = [(T0, stolen), (T0 + MS, call), (T0 + 2 * MS, stolen)]
    path = tmp_path / "some.pcap"
    path.write_bytes(pcap(*((at, ethernet(ipv4(udp(payload, dport=40001)))) for at, payload in frames)))
    flows = [flow(filter="data.len == 64", key={"field": "udp.length"}), flow(filter="rpc", key={"field": "data.len"})]
    found = dissect_columns(path, read_capture(path), flows, Deadline.after(30))
    assert found is not None
    assert found.passes["data.len == 64"].tolist() == [True, False, True]
    assert found.passes["rpc"].tolist() == [False, True, False]
    length = dict(found.fields["data.len"].tolist())
    assert length[0] == length[2]
    assert sorted(dict(found.fields["udp.length"].tolist())) == [0, 1, 2]


MODBUS_PLAN = """\
plan: modbus
flows:
  requests: {tcp.dstport: 502, key: {field: mbtcp.trans_id}}
  answers: {tcp.srcport: 502, key: {field: mbtcp.trans_id}}
checks:
  answer-time:
    response_time: {request: requests, response: answers, match: key}
    limits: {each: {max: 15 ms}}
  answered:
    loss: {of: requests, answered_by: answers, match: key}
    limits: {count: {max: 0}}
"""


@pytest.mark.parametrize(("answers", "slowest"), [(((0,), (1,)), 30), (((0, 1),), 10)])
def test_each_of_several_messages_in_one_segment_is_matched(
    tmp_path: Path, answers: tuple[tuple[int, ...], ...], slowest: int
) -> None:
    """Two Modbus requests in each segment, answered apart after 10 and 30 ms, or at once after 10 ms."""

    def message(number: int, more: bytes) -> bytes:
        return struct.pack(">HHHB", number, 0, 1 + len(more), 1) + more

    frames, sent, said = [], 1, 1
    for first in range(0, 20, 2):
        asked = b"".join(message(first + k, b"\x03\0\0\0\1") for k in (0, 1))
        at = T0 + first * 100 * MS
        frames.append((at, ethernet(ipv4(tcp(asked, sport=40000, dport=502, sequence=sent), proto=6))))
        sent += len(asked)
        for after_ms, which in zip((10, 30), answers, strict=False):
            body = b"".join(message(first + k, b"\x03\x02\0\7") for k in which)
            segment = tcp(body, sport=502, dport=40000, sequence=said)
            frames.append((at + after_ms * MS, ethernet(ipv4(segment, proto=6, src=B4, dst=A4))))
            said += len(body)
    path, plan = tmp_path / "modbus.pcap", tmp_path / "modbus.plan.yaml"
    path.write_bytes(pcap(*frames))
    plan.write_text(MODBUS_PLAN)
    plan_file = load_plan(plan)
    result = judge_capture(Capture(path), plan_file, plan_file.points[0], load_bench(EMULATED))
    times, lost = result.checks
    assert times.summary is not None
    assert (times.n, times.summary.max_ns) == (20, slowest * MS)
    assert [str(check.verdict) for check in (times, lost)] == ["FAIL" if slowest > 15 else "PASS", "PASS"]


def test_flows_that_ask_for_nothing_cost_no_pass(capture: Path) -> None:
    assert dissect_columns(capture, read_capture(capture), [flow(key={"bytes": 2})], Deadline.after(0)) is None


@pytest.mark.parametrize(
    ("keys", "place", "words"),
    [
        ({"filter": "dns.flags.respons == 0"}, "filter", "dns.flags.respons"),
        ({"filter": "udp &&"}, "filter", ""),
        ({"key": {"field": "dns.idd"}}, "key", "dns.idd"),
    ],
)
def test_unknown_names_are_refused_before_a_run_and_fail_one_that_got_through(
    capture: Path, keys: dict[str, Any], place: str, words: str
) -> None:
    found = wireshark_fault(flow(**keys), Deadline.after(30))
    assert found is not None
    assert found[0] == place
    assert words in found[1]
    with pytest.raises(CaptureError):
        dissect_columns(capture, read_capture(capture), [flow(**keys)], Deadline.after(30))


def test_sound_names_are_accepted() -> None:
    assert wireshark_fault(flow(filter="token.type == 1", key={"field": "dns.id"}), Deadline.after(30)) is None


def test_a_filter_cannot_leave_its_place_in_the_script(capture: Path) -> None:
    evil = 'udp" .. os.exit(3) .. "'
    with pytest.raises(CaptureError):
        dissect_columns(capture, read_capture(capture), [flow(filter=evil)], Deadline.after(30))
