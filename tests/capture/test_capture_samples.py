"""Public captures: what an independent tool reports of them, and every row against tshark."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from test_capture_reader import against_tshark

from rig.capture.reader import read_capture
from rig.timing.table import PROTO_ARP, PROTO_ICMP, PROTO_OTHER, PROTO_UDP


def kinds(path: Path) -> list[str]:
    return [finding.kind for finding in read_capture(path).findings]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize(
    "name",
    [
        "modbus-small.pcap",
        "synchrophasor-periodic.pcap",
        "nanoseconds-bigendian.pcap",
        "isb-drops.pcapng",
        "every-frame-twice.pcap",
        "vlan-collisions.pcap",
        "sll2.pcap",
        "rpc-nfs-bigendian.pcap",
        "tsresol-2e-8.pcapng",
    ],
)
def test_every_row_is_as_tshark_has_it(samples: Path, name: str) -> None:
    against_tshark(samples / name)


def test_synchrophasor_gaps(samples: Path) -> None:
    table = read_capture(samples / "synchrophasor-periodic.pcap")
    gaps = np.diff(table.time_ns[table.proto == PROTO_UDP])
    assert len(gaps) == 360
    assert (round(gaps.min() / 1e6, 3), round(gaps.max() / 1e6, 3)) == (1.177, 316.833)


def test_big_endian_nanoseconds(samples: Path) -> None:
    table = read_capture(samples / "nanoseconds-bigendian.pcap")
    assert (len(table), table.time_ns[-1] - table.time_ns[0]) == (10, 804_603)


def test_rpc_over_big_endian_pcap(samples: Path) -> None:
    table = read_capture(samples / "rpc-nfs-bigendian.pcap")
    assert (len(table), table.findings) == (156, ())


def test_the_coarse_resolution_is_known(samples: Path) -> None:
    table = read_capture(samples / "tsresol-2e-8.pcapng")
    assert (len(table), table.interfaces[0].resolution_ns) == (1, 3_906_250.0)


def test_the_drops_of_the_statistics_block_are_found(samples: Path) -> None:
    table = read_capture(samples / "isb-drops.pcapng")
    assert (len(table), table.interfaces[0].dropped) == (10, 757)
    assert kinds(samples / "isb-drops.pcapng") == ["interface-drops"]


def test_the_corrupt_file_is_told_without_a_traceback(samples: Path) -> None:
    assert len(read_capture(samples / "no-packet-cut.pcap")) == 0
    assert kinds(samples / "no-packet-cut.pcap") == ["corrupt-block"]


def test_every_frame_twice_has_equal_times_and_bytes(samples: Path) -> None:
    table = read_capture(samples / "every-frame-twice.pcap")
    assert (np.diff(table.time_ns) == 0).sum() >= len(table) // 2 - 1


def test_vlans_keep_flows_apart(samples: Path) -> None:
    table = read_capture(samples / "vlan-collisions.pcap")
    assert {flow.vlans for flow in table.flows} == {(), (42,), (10, 20)}
    assert len({flow[1:] for flow in table.flows}) == len(table.flows) // 3


def test_cooked_v2_is_read(samples: Path) -> None:
    table = read_capture(samples / "sll2.pcap")
    assert (len(table), table.findings) == (6, ())
    assert table.proto.tolist() == [PROTO_ICMP] * 4 + [PROTO_ARP, PROTO_OTHER], "RARP is none of ours"
