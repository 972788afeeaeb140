"""Filters and fields of a plan's flows through the real tshark: aligned with our rows, refused where unknown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.capture.columns import dissect_columns, wireshark_fault
from rig.capture.reader import read_capture
from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.plan.model import Flow
from rig.protocol.token_v2 import ANSWER, REQUEST, Header, encode, encode_request, encode_tokens

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")

BOARD, JETSON = "10.77.0.10", "10.77.0.20"


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
    ids, requests = found.fields["dns.id"].tolist(), found.fields["token.request_id"].tolist()
    assert ids[0] == ids[1] >= 0
    assert ids[3:] == [-1, -1]
    assert requests[3] == requests[4] >= 0
    assert requests[0] == -1
    assert requests[3] != ids[0]


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
