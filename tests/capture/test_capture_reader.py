"""Both reading engines on hand-made files: numbers by hand, and by tshark where tshark is right."""

from __future__ import annotations

import gzip
import io
import random
import shutil
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from capture_files import (
    A4,
    B4,
    T0,
    block,
    epb,
    ethernet,
    idb,
    ipv4,
    ipv6,
    isb,
    pcap,
    shb,
    sll,
    sll2,
    spb,
    tcp,
    udp,
)

from rig import _native
from rig.capture.reader import read_capture
from rig.capture.tail import CaptureTail
from rig.capture.tshark import read_fields
from rig.deadline import Deadline
from rig.errors import CaptureError, InternalError
from rig.progress import ERASE, reading_progress
from rig.timing.table import PROTO_ARP, PROTO_ICMP, PROTO_TCP, PROTO_UDP, FlowKey, FrameTable

FLOW = FlowKey((), "192.0.2.1", "192.0.2.2", PROTO_UDP, 40000, 5005)
Read = Callable[[bytes], FrameTable]


@pytest.fixture(params=["plain", "native"])
def read(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    if request.param == "plain":
        monkeypatch.setattr("rig._native.load", lambda: None)
    elif _native.load() is None:
        pytest.skip("the capture kernel is not built")

    def read(contents: bytes) -> FrameTable:
        path = tmp_path / "file"
        path.write_bytes(contents)
        return read_capture(path)

    return read


def one(payload: bytes = b"hello") -> bytes:
    return ethernet(ipv4(udp(payload)))


def payload(table: FrameTable, row: int) -> bytes:
    start = int(table.payload_off[row])
    return bytes(table.data[start : start + int(table.payload_cap[row])])


def kinds(table: FrameTable) -> list[str]:
    return [finding.kind for finding in table.findings]


# --- files and their clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [True, False])
def test_pcap_of_both_byte_orders_and_resolutions(read: Read, order: str, nano: bool) -> None:
    table = read(pcap((T0 + 37_000, one()), (T0 + 999_999_000, one(b"x")), order=order, nano=nano))
    assert table.time_ns.tolist() == [T0 + 37_000, T0 + 999_999_000]
    assert table.number.tolist() == [1, 2]
    assert table.flows == (FLOW,)
    assert (payload(table, 0), payload(table, 1)) == (b"hello", b"x")
    assert table.interfaces[0].resolution_ns == (1 if nano else 1000)
    assert table.findings == ()


def test_times_37_ns_apart_stay_37_ns_apart(read: Read) -> None:
    table = read(shb() + idb() + epb(T0 + 1, one()) + epb(T0 + 38, one()))
    assert np.diff(table.time_ns).tolist() == [37]


@pytest.mark.parametrize(
    ("tsresol", "ticks", "time_ns"),
    [
        (None, 1_700_000_000_000_001, 1_700_000_000_000_001_000),  # default: 10^-6
        (9, 1_700_000_000_000_000_001, 1_700_000_000_000_000_001),
        (0, 1_700_000_000, 1_700_000_000_000_000_000),
        (12, 1_700_000_000_000_000_999_999 & (1 << 64) - 1, None),
        (0x80 | 8, 1_700_000_000 * 256 + 1, 1_700_000_000_003_906_250),
        (0x80 | 30, (1_700_000_000 << 30) + (1 << 29) + 1, 1_700_000_000_500_000_000),  # 0.93 ns, rounded down
    ],
)
def test_resolutions_are_exact(read: Read, tsresol: int | None, ticks: int, time_ns: int | None) -> None:
    table = read(shb() + idb(tsresol=tsresol) + epb(ticks, one()))
    assert table.time_ns.tolist() == [ticks // 1000 if time_ns is None else time_ns]


def test_a_time_offset_is_added(read: Read) -> None:
    table = read(shb() + idb(tsoffset=1_700_000_000) + epb(5, one()) + idb(tsoffset=-3) + epb(5, one(), interface=1))
    assert sorted(table.time_ns.tolist()) == [-2_999_999_995, T0 + 5]


def test_each_interface_has_its_own_resolution(read: Read) -> None:
    table = read(
        shb()
        + idb(tsresol=9, name=b"a")
        + idb(tsresol=6, name=b"b")
        + epb(T0 + 2000, one(), interface=0)
        + epb((T0 + 3000) // 1000, one(), interface=1)
    )
    assert table.time_ns.tolist() == [T0 + 2000, T0 + 3000]
    assert table.interface.tolist() == [0, 1]
    assert [(one.name, one.resolution_ns) for one in table.interfaces] == [("a", 1.0), ("b", 1000.0)]


def test_sections_of_different_byte_order_and_interfaces_follow_each_other(read: Read) -> None:
    table = read(
        shb("<")
        + idb("<", tsresol=9)
        + epb(T0, one(b"1"), "<")
        + shb(">")
        + idb(">", tsresol=6, linktype=113)
        + epb(T0 // 1000 + 1, sll(ipv4(udp(b"2"))), ">")
    )
    assert table.time_ns.tolist() == [T0, T0 + 1000]
    assert table.interface.tolist() == [0, 1]
    assert (payload(table, 0), payload(table, 1)) == (b"1", b"2")
    assert table.findings == ()


def test_rows_are_sorted_by_time_and_keep_their_frame_numbers(read: Read) -> None:
    table = read(shb() + idb() + idb() + epb(T0 + 9, one()) + epb(T0, one(), interface=1) + epb(T0 + 9, one()))
    assert table.number.tolist() == [2, 1, 3]
    assert table.findings == (), "different interfaces may be out of order"


def test_a_step_back_within_an_interface_is_a_finding(read: Read) -> None:
    table = read(shb() + idb(name=b"eth0") + epb(T0 + 5, one()) + epb(T0 + 2, one()) + epb(T0 + 4, one()))
    assert table.number.tolist() == [2, 3, 1]
    assert kinds(table) == ["time-step-back"]
    assert "by 3 ns at frame 2 of interface 0 (eth0)" in table.findings[0].detail
    assert table.findings[0].amount == 3


def test_simple_packets_have_no_time_and_no_row_but_a_number(read: Read) -> None:
    table = read(shb() + idb() + spb(one()) + epb(T0, one()))
    assert table.number.tolist() == [2]
    assert kinds(table) == ["no-timestamp"]
    assert table.findings[0].detail.startswith("1 frames have no time")


def test_the_obsolete_packet_block_is_read(read: Read) -> None:
    frame = one()
    body = struct.pack("<HHIIII", 0, 0, T0 >> 32, T0 & 0xFFFFFFFF, len(frame), len(frame)) + frame
    table = read(shb() + idb() + block(2, body))
    assert (table.time_ns.tolist(), payload(table, 0)) == ([T0], b"hello")


def test_other_blocks_are_skipped(read: Read) -> None:
    noise = block(4, b"\0" * 8) + block(10, b"secrets!") + block(0xBAD, b"\1\2\3\4") + block(0x40000BAD, b"x" * 100)
    table = read(shb() + noise + idb() + noise + epb(T0, one()) + noise)
    assert (len(table), table.findings) == (1, ())


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_blocks_that_are_no_packets_take_a_number_where_they_do_in_wireshark(tmp_path: Path, read: Read) -> None:
    event = struct.pack("<HQQIH", 0, T0, 5, 26, 1) + b"\0" * 8
    others = [
        *(block(kind, b"\0" * 16) for kind in (4, 7, 0x201, 0x900)),
        block(9, f"__REALTIME_TIMESTAMP={T0 // 1000}\nMESSAGE=hi\n".encode()),
        *(block(kind, event) for kind in (0x204, 0x216, 0x221)),
        *(block(kind, struct.pack("<I", 32473) + b"ours") for kind in (0xBAD, 0x40000BAD)),
    ]
    path = tmp_path / "blocks.pcapng"
    path.write_bytes(shb() + idb() + b"".join(other + epb(T0, one()) for other in others))
    shown = read_fields(path, ["frame.number"], Deadline.after(60), display_filter="udp", dissector=False)
    assert read(path.read_bytes()).number.tolist() == [int(number) for (number,) in shown]


def test_drops_of_the_interface_statistics_are_told(read: Read) -> None:
    table = read(shb() + idb(name=b"rp0") + epb(T0, one()) + isb(20_000, 18_048))
    assert (table.interfaces[0].received, table.interfaces[0].dropped) == (20_000, 18_048)
    assert kinds(table) == ["interface-drops"]
    assert "18048 of 20000 received on interface 0 (rp0)" in table.findings[0].detail


def test_interfaces_that_say_nothing_about_drops_are_minus_one(read: Read) -> None:
    assert read(shb() + idb()).interfaces[0].dropped == -1
    assert read(shb() + idb() + isb(5, 0)).interfaces[0].dropped == 0


def test_gzip_is_unpacked_and_a_cut_gzip_yields_its_sound_part(read: Read) -> None:
    rng = random.Random(1)
    file = shb() + idb() + b"".join(epb(T0 + i, one(rng.randbytes(900))) for i in range(500))
    packed = gzip.compress(file)
    assert len(read(packed)) == 500
    cut = read(packed[: len(packed) // 2])
    assert 100 < len(cut) < 400
    assert "cut-file" in kinds(cut)


def test_zstd_is_unpacked_and_a_cut_stream_yields_its_sound_part(read: Read) -> None:
    zstandard = pytest.importorskip("zstandard")
    rng = random.Random(1)
    file = shb() + idb() + b"".join(epb(T0 + i, one(rng.randbytes(900))) for i in range(500))
    half = len(file) // 2
    packed = zstandard.compress(file[:half]) + b"\x50\x2a\x4d\x18\4\0\0\0skip" + zstandard.compress(file[half:])
    assert len(read(packed)) == 500
    cut = read(packed[: len(packed) * 3 // 4])
    assert 200 < len(cut) < 400
    assert "cut-file" in kinds(cut)


def test_zstd_without_its_library_is_an_error_that_says_what_to_do(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InternalError, match="compressed with zstd") as caught:
        read(b"\x28\xb5\x2f\xfd....")
    assert "zstd -d" in str(caught.value)


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: data])
def test_progress_is_told_and_ends_with_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    for module in ("plain", "native"):
        monkeypatch.setattr(f"rig.capture.{module}.STEP", 4096)
    contents = pcap(*((T0 + i, one()) for i in range(1000)))
    path = tmp_path / "file"
    path.write_bytes(compress(contents))
    told: list[tuple[int, int]] = []
    read_capture(path, lambda done, size: told.append((done, size)))
    assert len(told) > 10
    assert told == sorted(told)
    assert {size for _, size in told} == {len(contents)}
    assert told[-1] == (len(contents), len(contents))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_file_shows_its_progress_on_a_terminal_and_wipes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("rig.progress.time.monotonic", lambda: now[0])
    stream = Terminal()
    show = reading_progress(Path("folder/long.pcapng"), stream)
    assert show is not None
    show(1_000_000, 100_000_000)
    assert stream.getvalue() == "", "a quick one shows nothing"
    now[0] += 2
    show(25_000_000, 100_000_000)
    assert "long.pcapng: 25 of 100 MB, 25 %, 6 s left" in stream.getvalue()
    show(100_000_000, 100_000_000)
    assert stream.getvalue().endswith(ERASE)
    assert reading_progress(Path("file"), io.StringIO()) is None


# --- damage -----------------------------------------------------------------------------------------------------------


def test_every_prefix_of_a_file_yields_the_whole_frames_before_the_cut(read: Read) -> None:
    head = shb() + idb()
    packets = [epb(T0 + i, one(b"x" * i)) for i in range(4)]
    file = head + b"".join(packets)
    ends = [len(head) + sum(len(p) for p in packets[: i + 1]) for i in range(len(packets))]
    for cut in range(16, len(file)):
        table = read(file[:cut])
        assert len(table) == sum(end <= cut for end in ends)
        boundaries = (len(shb()), len(head), *ends)
        assert kinds(table) == ([] if cut in boundaries else ["cut-file"]), cut


def test_a_cut_pcap_does_not_pass_its_last_frame_off_as_whole(read: Read) -> None:
    file = pcap(*((T0 + i, one()) for i in range(4)))
    table = read(file[:-1])
    assert (len(table), kinds(table)) == (3, ["cut-file"])
    assert "frame 4" in table.findings[0].detail


def test_an_impossible_block_stops_the_reading_with_its_place(read: Read) -> None:
    sound = shb() + idb() + epb(T0, one())
    for bad in (block(6, b"x" * 40)[:4] + struct.pack("<I", 7) + b"\0" * 60, block(6, b"x" * 40)[:-4] + b"\1\0\0\0"):
        table = read(sound + bad + epb(T0, one()))
        assert (len(table), kinds(table)) == (1, ["corrupt-block"])
        assert f"at byte {len(sound)}" in table.findings[0].detail


@pytest.mark.parametrize(
    "bad",
    [
        block(6, struct.pack("<IIIII", 0, 0, 0, 900, 900) + b"x" * 20),  # more captured than the block holds
        block(6, struct.pack("<IIIII", 0, 0, 0, 24, 24) + b"x" * 20),  # … by its trailer only
        block(6, struct.pack("<IIIII", 7, 0, 0, 20, 20) + b"x" * 20),  # no such interface
        block(6, b"\0" * 8),  # too short
        block(6, struct.pack("<IIIII", 1, 0xFFFFFFFF, 0, 4, 4) + b"xxxx"),  # a time beyond int64
    ],
)
def test_a_damaged_packet_in_sound_framing_is_left_out_alone(read: Read, bad: bytes) -> None:
    table = read(shb() + idb() + idb(tsresol=0) + epb(T0, one()) + bad + epb(T0 + 1, one()))
    assert (table.number.tolist(), kinds(table)) == ([1, 3], ["corrupt-block"])


def test_many_damaged_packets_are_one_finding_with_their_number(read: Read) -> None:
    table = read(shb() + idb() + block(6, b"\0" * 8) * 1000)
    assert len(table.findings) == 1
    assert "1000 times" in table.findings[0].detail


def test_an_impossible_pcap_record_is_told(read: Read) -> None:
    table = read(pcap((T0, one())) + struct.pack("<IIII", 1, 0, 1 << 30, 60) + b"\0" * 99)
    assert (len(table), kinds(table)) == (1, ["corrupt-block"])


def test_a_fraction_of_more_than_a_second_is_taken_as_it_stands_and_told(read: Read) -> None:
    file = pcap((0, one()), nano=False)
    file = file[:24] + struct.pack("<II", 1_700_000_000, 1_500_000) + file[32:]
    table = read(file)
    assert (table.time_ns.tolist(), kinds(table)) == ([T0 + 1_500_000_000], ["corrupt-block"])


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        (b"", "is empty"),
        (b"\0" * 100, "no capture file: it begins with 00 00 00 00"),
        (b"\x1f\x8b", "is empty"),
        (b"GIF89a", "no capture file"),
    ],
)
def test_what_is_no_capture_is_an_error(read: Read, contents: bytes, problem: str) -> None:
    with pytest.raises(CaptureError, match=problem):
        read(contents)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        read_capture(tmp_path / "none.pcapng")


# --- frames -----------------------------------------------------------------------------------------------------------


def test_padding_is_not_payload(read: Read) -> None:
    table = read(pcap((T0, ethernet(ipv4(udp(b"!")), pad=True))))
    assert (table.wire_len[0], table.payload_len[0], table.payload_cap[0], payload(table, 0)) == (60, 1, 1, b"!")
    tcp_row = read(pcap((T0, ethernet(ipv4(tcp(b""), proto=6), pad=True))))
    assert (tcp_row.proto[0], tcp_row.payload_len[0]) == (PROTO_TCP, 0)


def test_vlans_are_part_of_the_flow_from_outer_to_inner(read: Read) -> None:
    packet = ipv4(udp(b"hello"))
    table = read(
        pcap(
            (T0, ethernet(packet)),
            (T0 + 1, ethernet(packet, vlans=(42,))),
            (T0 + 2, ethernet(packet, vlans=(10, 20))),
            (T0 + 3, ethernet(packet, vlans=(0xE000 | 42,))),  # priority bits are no part of the id
        )
    )
    assert [flow.vlans for flow in table.flows] == [(), (42,), (10, 20)]
    assert table.flow.tolist() == [0, 1, 2, 1]
    assert [payload(table, row) for row in range(4)] == [b"hello"] * 4


def test_ipv4_options_and_tcp_options_move_the_payload(read: Read) -> None:
    table = read(
        pcap(
            (T0, ethernet(ipv4(udp(b"one"), options=b"\x94\x04\0\0"))),
            (T0 + 1, ethernet(ipv4(tcp(b"two", options=b"\1" * 12), proto=6))),
        )
    )
    assert [payload(table, 0), payload(table, 1)] == [b"one", b"two"]
    assert table.flows[1] == FlowKey((), "192.0.2.1", "192.0.2.2", PROTO_TCP, 40000, 502)


def test_ipv6_extension_headers_are_walked(read: Read) -> None:
    segment = udp(b"six")
    chain = bytes([43, 0]) + b"\1\4" + b"\0" * 4  # hop-by-hop
    chain += bytes([51, 1]) + b"\0" * 14  # routing, 16 bytes
    chain += bytes([44, 2]) + b"\0" * 14  # authentication header, 16 bytes
    chain += bytes([60, 0, 0, 0]) + b"\0\0\0\7"  # atomic fragment
    chain += bytes([17, 0]) + b"\1\4" + b"\0" * 4  # destination options
    table = read(pcap((T0, ethernet(ipv6(chain + segment, proto=0), 0x86DD))))
    assert table.flows == (FlowKey((), "2001:db8::1", "2001:db8::2", PROTO_UDP, 40000, 5005),)
    assert payload(table, 0) == b"six"


@pytest.mark.parametrize(
    ("linktype", "frame"),
    [
        (101, ipv4(udp(b"hello"))),
        (228, ipv4(udp(b"hello"))),
        (229, ipv6(udp(b"hello"))),
        (113, sll(ipv4(udp(b"hello")))),
        (113, sll(b"\0\x2a\x08\0" + ipv4(udp(b"hello")), 0x8100)),
        (276, sll2(ipv4(udp(b"hello")))),
        (0, b"\x02\0\0\0" + ipv4(udp(b"hello"))),
        (0, b"\0\0\0\x02" + ipv4(udp(b"hello"))),
        (108, b"\0\0\0\x1c" + ipv6(udp(b"hello"))),
    ],
)
def test_link_types(read: Read, linktype: int, frame: bytes) -> None:
    table = read(pcap((T0, frame), linktype=linktype))
    assert (table.flow.tolist(), payload(table, 0), table.findings) == ([0], b"hello", ())


def test_frame_check_sequences_announced_beside_the_link_type_do_not_hide_it(read: Read) -> None:
    table = read(pcap((T0, one() + b"\1\2\3\4"), linktype=0x4400_0001))
    assert (table.interfaces[0].linktype, payload(table, 0)) == (1, b"hello")


def test_an_unsupported_link_type_is_named_and_its_frames_are_counted(read: Read) -> None:
    table = read(pcap((T0, one()), (T0, one()), linktype=127))
    assert (len(table), table.flow.tolist()) == (2, [-1, -1])
    assert kinds(table) == ["unsupported-linktype"]
    assert "127 (IEEE 802.11 with radiotap)" in table.findings[0].detail
    assert "2 frames" in table.findings[0].detail


def test_a_datagram_quoted_in_icmp_is_not_that_datagram(read: Read) -> None:
    quoted = ipv4(udp(b"hello"))
    table = read(
        pcap(
            (T0, ethernet(quoted)),
            (T0 + 50_000, ethernet(ipv4(b"\3\3\0\0\0\0\0\0" + quoted, proto=1, src=B4, dst=A4))),
        )
    )
    assert table.proto.tolist() == [PROTO_UDP, PROTO_ICMP]
    assert table.flows[table.flow[1]] == FlowKey((), "192.0.2.2", "192.0.2.1", PROTO_ICMP, 0, 0)


def test_arp_is_told_from_the_rest(read: Read) -> None:
    table = read(pcap((T0, ethernet(b"\0\1\x08\0\6\4\0\1" + b"\0" * 20, 0x0806))))
    assert (table.proto.tolist(), table.flow.tolist()) == ([PROTO_ARP], [-1])


def test_a_snap_length_cut_is_known_per_payload(read: Read) -> None:
    table = read(pcap((T0, one(b"hello")), (T0 + 1, one(b"h")), snaplen=46))
    assert (table.cap_len.tolist(), table.wire_len.tolist()) == ([46, 43], [47, 43])
    assert (table.payload_len.tolist(), table.payload_cap.tolist()) == ([5, 1], [4, 1])
    assert kinds(table) == ["snaplen-cut"]


@pytest.mark.parametrize("snaplen", range(1, 46))
def test_a_cut_within_headers_never_invents_a_payload(read: Read, snaplen: int) -> None:
    table = read(pcap((T0, one(b"hello")), snaplen=snaplen))
    assert table.payload_cap[0] == max(0, snaplen - 42)
    assert payload(table, 0) == b"hello"[: max(0, snaplen - 42)]
    if snaplen >= 38:  # The ports are there.
        assert (table.flow[0], table.payload_len[0]) == (0, 5)


def test_lengths_left_to_the_hardware_are_taken_from_the_frame(read: Read) -> None:
    merged = ethernet(ipv4(tcp(b"z" * 3000), proto=6, total=0))
    table = read(pcap((T0, merged), (T0, ethernet(ipv6(udp(b"j" * 2000, length=0), length=0), 0x86DD))))
    assert table.payload_len.tolist() == [3000, 2000]


@pytest.mark.parametrize("length", [1, 7])
def test_an_impossible_udp_length_is_no_datagram(read: Read, length: int) -> None:
    table = read(pcap((T0, ethernet(ipv4(udp(b"hello", length=length))))))
    assert (table.proto.tolist(), table.flow.tolist(), table.payload_len.tolist()) == ([PROTO_UDP], [-1], [0])


def test_a_udp_length_beyond_the_ip_packet_is_clipped_to_it(read: Read) -> None:
    table = read(pcap((T0, ethernet(ipv4(udp(b"hello", length=999)), pad=True))))
    assert (table.payload_len.tolist(), payload(table, 0)) == ([5], b"hello")


# --- fragments --------------------------------------------------------------------------------------------------------


def fragments(size: int = 3000, *, ident: int = 7) -> tuple[bytes, list[bytes]]:
    content = bytes(i * 7 & 0xFF for i in range(size))
    segment = udp(content)
    cuts = [segment[at : at + 1480] for at in range(0, len(segment), 1480)]
    return content, [
        ethernet(ipv4(part, ident=ident, offset=1480 * i, more=i < len(cuts) - 1), pad=True)
        for i, part in enumerate(cuts)
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_fragments_in_any_order_are_one_datagram_at_the_one_that_came_last(read: Read, order: tuple[int, ...]) -> None:
    content, parts = fragments()
    table = read(pcap(*((T0 + 1000 * i, parts[at]) for i, at in enumerate(order)), (T0 + 9000, one())))
    assert table.flow.tolist() == [-1, -1, 0, 0]
    assert (table.first_ns[2], table.time_ns[2], table.number[2]) == (T0, T0 + 2000, 3)
    assert (table.payload_len[2], payload(table, 2)) == (3000, content)
    assert payload(table, 3) == b"hello"
    assert table.findings == ()


def test_a_later_fragment_that_looks_like_a_datagram_is_none(read: Read) -> None:
    whole = udp(b"a" * 1472 + udp(b"b" * 12))
    parts = [(0, whole[:1480], True), (1480, whole[1480:], False)]
    table = read(pcap(*((T0 + at, ethernet(ipv4(part, offset=at, more=more))) for at, part, more in parts)))
    assert (table.flow.tolist(), table.payload_len.tolist()) == ([-1, 0], [0, 1492])


def test_ipv6_fragments_are_joined(read: Read) -> None:
    segment = udp(b"6" * 2000)
    parts = [(0, segment[:1232], 1), (1232, segment[1232:], 0)]
    frames = [
        (T0 + at, ethernet(ipv6(struct.pack(">BBHI", 17, 0, at | more, 99) + part, proto=44), 0x86DD))
        for at, part, more in parts
    ]
    table = read(pcap(*frames))
    assert (table.flow.tolist(), table.first_ns[1], payload(table, 1)) == ([-1, 0], T0, b"6" * 2000)


def test_a_duplicated_fragment_is_ignored(read: Read) -> None:
    content, parts = fragments()
    table = read(pcap(*((T0 + i, parts[at]) for i, at in enumerate((0, 0, 1, 1, 2)))))
    assert table.flow.tolist() == [-1, -1, -1, -1, 0]
    assert payload(table, 4) == content


def test_a_contradicting_fragment_begins_anew(read: Read) -> None:
    content, parts = fragments()
    other = ethernet(ipv4(udp(b"?" * 1472, length=3008), ident=7, more=True))
    table = read(pcap(*((T0 + i, frame) for i, frame in enumerate((other, *parts)))))
    assert payload(table, 3) == content
    assert kinds(table) == ["incomplete-datagram"]


def test_a_lost_fragment_is_a_lost_datagram_and_a_finding(read: Read) -> None:
    _, parts = fragments()
    table = read(pcap((T0, parts[0]), (T0 + 1, parts[2])))
    assert (table.flow.tolist(), kinds(table)) == ([-1, -1], ["incomplete-datagram"])


def test_fragments_of_datagrams_a_minute_apart_do_not_mix(read: Read) -> None:
    content, parts = fragments()
    _, stale = fragments()
    later = T0 + 60_000_000_000
    table = read(pcap((T0, stale[2]), *((later + i, part) for i, part in enumerate(parts))))
    assert table.first_ns[3] == later
    assert payload(table, 3) == content


def test_a_snap_length_cut_in_a_fragment_leaves_the_sound_beginning(read: Read) -> None:
    content, parts = fragments()
    table = read(pcap(*((T0 + i, part) for i, part in enumerate(parts)), snaplen=1000))
    assert table.payload_len[2] == 3000
    assert payload(table, 2) == content[: 1000 - 34 - 8]


def test_a_datagram_of_many_small_fragments_is_joined_in_linear_time(read: Read) -> None:
    segment = udp(bytes(i * 7 & 0xFF for i in range(60_000)))
    cuts = range(0, len(segment), 8)
    parts = [ethernet(ipv4(segment[at : at + 8], offset=at, more=at + 8 < len(segment))) for at in cuts]
    table = read(pcap(*((T0 + i, part) for i, part in enumerate(reversed(parts)))))
    assert (table.payload_len[-1], payload(table, len(table) - 1)) == (60_000, segment[8:])


# --- against tshark ---------------------------------------------------------------------------------------------------


def against_tshark(path: Path) -> int:
    """Compare every row with tshark's fields; returns the number of UDP and TCP rows compared."""
    fields = ["frame.number", "frame.time_epoch", "frame.len", "frame.cap_len", "ip.src", "ip.dst", "ipv6.src",
              "ipv6.dst", "udp.srcport", "udp.dstport", "udp.length", "tcp.srcport", "tcp.dstport", "tcp.len",
              "icmp.type", "icmpv6.type"]  # fmt: skip
    table = read_capture(path)
    rows = {int(number): row for row, number in enumerate(table.number)}
    compared = 0
    # The reader's rule is that of tshark with reassembly on: the datagram stands at the fragment that completes it.
    lines = read_fields(path, fields, Deadline.after(300), options=("ip.defragment:TRUE",), dissector=False)
    assert len(lines) == len(table)
    for line in lines:
        seen = dict(zip(fields, line, strict=True))
        row = rows.pop(int(seen["frame.number"]))
        seconds, _, fraction = seen["frame.time_epoch"].partition(".")
        assert int(seconds) * 1_000_000_000 + int(fraction) == table.time_ns[row]
        assert (int(seen["frame.len"]), int(seen["frame.cap_len"])) == (table.wire_len[row], table.cap_len[row])
        if seen["icmp.type"] or seen["icmpv6.type"]:
            assert table.proto[row] == PROTO_ICMP
            continue
        for name, proto in (("udp", PROTO_UDP), ("tcp", PROTO_TCP)):
            if seen[f"{name}.srcport"]:
                flow = table.flows[table.flow[row]]
                assert (flow.proto, flow.src, flow.dst, flow.srcport, flow.dstport) == (
                    proto,
                    seen["ip.src"] or seen["ipv6.src"],
                    seen["ip.dst"] or seen["ipv6.dst"],
                    int(seen[f"{name}.srcport"]),
                    int(seen[f"{name}.dstport"]),
                )
                length = int(seen["udp.length"]) - 8 if name == "udp" else int(seen["tcp.len"])
                assert table.payload_len[row] == length
                compared += 1
    assert not rows
    return compared


def traffic(count: int, seed: int) -> bytes:
    """A mixture of what benches carry, over two interfaces of different resolution and two sections."""
    rng = random.Random(seed)
    out = [shb(), idb(tsresol=9, name=b"in"), idb(tsresol=6, name=b"out")]
    order, time_ns = "<", T0
    for index in range(count):
        if index == count // 2:
            order = ">"
            out += [shb(order), idb(order, tsresol=9), idb(order, tsresol=6)]
        time_ns += rng.randrange(1, 3_000_000)
        content = rng.randbytes(rng.choice([0, 1, 17, 64, 300, 1400]))
        segment = udp(content, sport=rng.choice([40000, 40001]))
        vlans = rng.choice([(), (), (7,), (7, 8)])
        interface = rng.randrange(2)
        kind = rng.randrange(7)
        if kind == 0:
            frames = [ethernet(ipv4(segment), vlans=vlans, pad=True)]
        elif kind == 1:
            frames = [ethernet(ipv6(segment), 0x86DD, vlans=vlans)]
        elif kind == 2:
            frames = [ethernet(ipv4(tcp(content), proto=6), vlans=vlans, pad=True)]
        elif kind == 3:
            frames = [ethernet(ipv4(b"\3\3\0\0\0\0\0\0" + ipv4(segment), proto=1))]
        elif kind == 4:
            frames = [ethernet(b"\0\1\x08\0\6\4\0\1" + b"\0" * 20, 0x0806, pad=True)]
        elif kind == 5:
            frames = rng.sample(fragments(4000, ident=index)[1], 3)
        else:
            frames = [ethernet(ipv4(segment, options=b"\x94\x04\0\0"))]
        for frame in frames:
            time_ns += 1000
            ticks = time_ns if interface == 0 else time_ns // 1000
            out.append(epb(ticks, frame, order, interface=interface))
    return b"".join(out)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_generated_traffic_is_read_as_tshark_reads_it(tmp_path: Path, repeats: Callable[[int, int], int]) -> None:
    path = tmp_path / "traffic.pcapng"
    # 4 of 7 datagrams are UDP or TCP in one frame; the last kind sends 3 frames.
    for seed in range(repeats(1, 20)):
        path.write_bytes(traffic(40_000, seed=1 + seed))
        assert against_tshark(path) > 25_000


def test_too_many_flows_are_a_finding_that_names_the_way_out(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.capture.decode.MAX_FLOWS", 2)
    frames = [ethernet(ipv4(udp(b"x", sport=port))) for port in (1, 2, 3, 2, 4, 3)]
    table = read(pcap(*((T0 + i, frame) for i, frame in enumerate(frames))))
    assert table.flow.tolist() == [0, 1, -1, 1, -1, -1]
    ((kind, detail, _),) = table.findings
    assert kind == "too-many-flows"
    assert detail.startswith("the capture has more than 2 flows, and 3 packets belong to none")
    assert "tshark -r IN -Y FILTER -w OUT" in detail


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: traffic(40, seed=2), lambda: pcap(*((T0 + i, one()) for i in range(40)))])
def test_mutated_files_neither_crash_nor_blow_up(read: Read, make: Callable[[], bytes]) -> None:
    original = make()
    rng = random.Random(3)
    tracemalloc.start()
    try:
        for _ in range(250):
            mutant = bytearray(original)
            for _ in range(rng.choice([1, 1, 2, 8, 40])):
                at = rng.randrange(len(mutant))
                change = rng.randrange(4)
                if change == 0:
                    mutant[at] ^= 1 << rng.randrange(8)
                elif change == 1:
                    mutant[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80", b"\x0a\x0d\x0d\x0a"])
                elif change == 2:
                    del mutant[at : at + rng.randrange(1, 64)]
                else:
                    mutant[at:at] = mutant[at : at + rng.randrange(1, 64)]
            try:
                table = read(bytes(mutant))
            except CaptureError:
                continue
            ends = table.payload_off + table.payload_cap
            assert (ends <= len(table.data)).all()
            assert (table.payload_cap <= table.payload_len).all()
            assert (np.diff(table.time_ns) >= 0).all()
            assert (table.flow < len(table.flows)).all()
        assert tracemalloc.get_traced_memory()[1] < 40 * len(original) + 4_000_000
    finally:
        tracemalloc.stop()


def test_a_mapped_file_gives_the_same_table(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    for contents in (traffic(200, seed=4), pcap((T0, one()))):  # with and without fragments
        plain = read(contents)
        monkeypatch.setattr("rig.capture.contents.MAP_FROM", 10)
        mapped = read(contents)
        monkeypatch.undo()
        assert [payload(mapped, row) for row in range(len(mapped))] == [
            payload(plain, row) for row in range(len(plain))
        ]
        assert mapped.time_ns.tolist() == plain.time_ns.tolist()
        assert (mapped.flows, mapped.findings) == (plain.flows, plain.findings)


def test_a_file_of_nothing_but_interfaces_is_read_in_linear_time(read: Read) -> None:
    table = read(shb() + idb() * 65_600 + epb(T0, one()))
    assert (len(table.interfaces), kinds(table)) == (65_535, ["corrupt-block"])


# --- growing files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 7, 64, 5000])
def test_the_tail_picks_the_datagrams_with_the_needle_however_the_file_grows(tmp_path: Path, step: int) -> None:
    path = tmp_path / "growing.pcapng"
    tail = CaptureTail(path, b"NEEDLE")
    assert tail.poll() == []
    contents = (
        shb()
        + idb()
        + epb(T0, one())
        + epb(T0 + 1, one(b"a NEEDLE"))
        + shb(">")
        + idb(">")
        + epb(T0 + 2, ethernet(ipv4(udp(b"NEEDLE 2"), src=B4, dst=A4)), ">")
        + isb(9, 4, ">")
    )
    seen = []
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(contents), step):
            file.write(contents[at : at + step])
            seen += tail.poll()
    assert [(one.number, one.time_ns, one.payload) for one in seen] == [
        (2, T0 + 1, b"a NEEDLE"),
        (3, T0 + 2, b"NEEDLE 2"),
    ]
    assert seen[1].flow.src == "192.0.2.2"
    assert (tail.frames, tail.interfaces[1].dropped, tail.findings) == (3, 4, ())
    assert tail.application == "capture_files.py"


def test_the_tail_tells_a_cut_only_when_nothing_more_can_come(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    path.write_bytes((shb() + idb() + epb(T0, one()))[:-5])
    tail = CaptureTail(path, b"NEEDLE")
    tail.poll()
    assert tail.findings == ()
    tail.poll(final=True)
    assert [finding.kind for finding in tail.findings] == ["cut-file"]
