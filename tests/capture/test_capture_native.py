"""The C kernel gives the plain reader's rows, whatever the file; and reads and writes nothing that is not its own."""

from __future__ import annotations

import ctypes
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from capture_files import (
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
from hypothesis import given, settings
from hypothesis import strategies as st
from test_capture_reader import fragments, traffic

from rig import _native
from rig.capture import native, plain
from rig.capture.frames import Parser
from rig.capture.reader import parser_for, read_capture
from rig.capture.rows import Rows
from rig.errors import CaptureError
from rig.protocol import token_v2
from rig.timing import tokens
from rig.timing.table import FrameTable

NATIVE = Path(_native.__file__).parent
C_SOURCES = [str(NATIVE / name) for name in _native.SOURCES if name.endswith(".c")]
FUZZER = Path(__file__).with_name("fuzz_kernel.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernel, built from the sources as they stand."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = tmp_path_factory.mktemp("kernel") / "kernel.so"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, "-O2", "-std=c11", *warnings, "-fPIC", "-shared", *C_SOURCES, "-o", built], check=True)
    return _native.declare(ctypes.CDLL(str(built)))


def both(library: ctypes.CDLL, contents: bytes) -> tuple[Rows, Rows] | None:
    """Rows of the plain and the native engine, compared; None for what is no capture file."""
    try:
        parsers: list[Parser] = [parser_for(contents[:16], Path("generated")) for _ in range(2)]
    except CaptureError:
        return None
    slow = plain.read_rows(contents, parsers[0])
    fast = native.read_rows(library, contents, parsers[1])
    for name, column in slow.columns.items():
        other = fast.columns[name]
        assert other.dtype == column.dtype, name
        assert np.array_equal(other, column), f"{name}: {other[:20]} is not {column[:20]}"
    for item in fields(Rows):
        if item.name != "columns":
            assert getattr(fast, item.name) == getattr(slow, item.name), item.name
    assert parsers[1].interfaces == parsers[0].interfaces
    assert parsers[1].findings.listed() == parsers[0].findings.listed()
    assert parsers[1].number == parsers[0].number
    return slow, fast


def mixture() -> list[bytes]:
    """One of everything that a frame can be."""
    segment = udp(b"hello")
    deep = ethernet(ipv4(segment), vlans=(1, 2, 3, 4, 5))
    chain = bytes([43, 0]) + b"\1\4\0\0\0\0" + bytes([51, 1]) + b"\0" * 14 + bytes([44, 2]) + b"\0" * 14
    chain += bytes([60, 0, 0, 0]) + b"\0\0\0\7" + bytes([17, 0]) + b"\1\4\0\0\0\0"
    return [
        ethernet(ipv4(segment), pad=True),
        ethernet(ipv4(udp(b"x" * 120))),
        ethernet(ipv4(segment, options=b"\x94\x04\0\0")),
        ethernet(ipv4(segment), vlans=(42,)),
        ethernet(ipv4(segment), vlans=(1, 2, 3, 4)),
        deep,
        deep,
        ethernet(ipv4(tcp(b"two", options=b"\1" * 12), proto=6)),
        ethernet(ipv6(chain + segment, proto=0), 0x86DD),
        ethernet(ipv6(struct.pack(">BBHI", 17, 0, 1, 99) + segment + b"\0" * 3, proto=44), 0x86DD),
        ethernet(ipv6(struct.pack(">BBHI", 17, 0, 16, 99) + b"end", proto=44), 0x86DD),
        ethernet(ipv4(b"\3\3\0\0\0\0\0\0" + ipv4(segment), proto=1)),
        ethernet(ipv6(b"\1\4\0\0\0\0\0\0" + segment, proto=58), 0x86DD),
        ethernet(ipv4(b"gre", proto=47)),
        ethernet(b"\0\1\x08\0\6\4\0\1" + b"\0" * 20, 0x0806),
        ethernet(b"\0\1", 0x0806),
        ethernet(ipv4(tcp(b"z" * 300), proto=6, total=0)),
        ethernet(ipv6(udp(b"j" * 200, length=0), length=0), 0x86DD),
        ethernet(ipv4(udp(b"hello", length=7))),
        ethernet(ipv4(udp(b"hello", length=999))),
        *fragments()[1],
    ]


ETHERNET = mixture()
BY_LINKTYPE = {
    1: ETHERNET,
    101: [frame[14:] for frame in ETHERNET] + [b""],
    113: [sll(ipv4(udp(b"!"))), sll(b"\0\x2a\x08\0" + ipv4(udp(b"hello")), 0x8100)],
    276: [sll2(ipv4(udp(b"!"))), sll2(b"\0\1" * 14, 0x0806)[:20]],
    0: [family + ipv4(udp(b"!")) for family in (b"\x02\0\0\0", b"\0\0\0\x02", b"\0\0\0\x1c", b"\1\2\3\4")],
    108: [b"\0\0\0\x1e" + ipv6(udp(b"!"))],
    127: [b"radiotap"],
}


# --- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linktype", BY_LINKTYPE)
@pytest.mark.parametrize("order", "<>")
def test_every_kind_of_frame_and_every_cut_of_it(library: ctypes.CDLL, linktype: int, order: str) -> None:
    for frame in BY_LINKTYPE[linktype]:
        cuts = [(T0 + size, frame[:size]) for size in range(len(frame) + 1)] if len(frame) < 200 else [(T0, frame)]
        packets = b"".join(epb(time_ns, part, order, wire=len(frame)) for time_ns, part in cuts)
        assert both(library, shb(order) + idb(order, linktype=linktype) + packets)
        assert both(library, pcap(*cuts, order=order, linktype=linktype))


@pytest.mark.parametrize("seed", range(12))
def test_mixed_traffic_over_interfaces_and_sections(library: ctypes.CDLL, seed: int) -> None:
    seen = both(library, traffic(300, seed))
    assert seen is not None
    assert len(seen[0].columns["number"]) > 300


def test_many_flows(library: ctypes.CDLL) -> None:
    frames = [(T0 + i, ethernet(ipv4(udp(b"", sport=1 + i * 7 % 5000)))) for i in range(8000)]
    seen = both(library, pcap(*frames))
    assert seen is not None
    assert len(seen[1].flows) == 5000


def test_packets_of_too_many_flows(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.capture.decode.MAX_FLOWS", 40)
    frames = [ethernet(ipv4(udp(b"x" * port, sport=1 + port)), vlans=(7,) * (port % 6)) for port in range(80)]
    frames += fragments()[1]
    seen = both(library, pcap(*((T0 + i, frame) for i, frame in enumerate(frames * 2))))
    assert seen is not None
    assert len(seen[1].flows) == 40
    assert seen[1].not_listed == 2 * 40 + 2  # a datagram in fragments is one packet
    assert (seen[1].columns["flow"][:40] == np.arange(40)).all()
    assert (seen[1].columns["flow"][40:80] == -1).all()


def test_more_frames_than_room_was_made_for(library: ctypes.CDLL) -> None:
    seen = both(library, pcap(*((T0 + i, b"") for i in range(5000)), (T0, ETHERNET[0])))
    assert seen is not None
    assert len(seen[1].columns["number"]) == 5001


@pytest.mark.parametrize("tsresol", [None, 0, 3, 6, 9, 10, 12, 19, 20, 127, 0x80, 0x88, 0x9E, 0xBF, 0xC0, 0xFF])
@pytest.mark.parametrize("tsoffset", [None, 1, -1_700_000_000, (1 << 63) - 1, -(1 << 63)])
def test_every_resolution_and_offset(library: ctypes.CDLL, tsresol: int | None, tsoffset: int | None) -> None:
    ticks = [0, 1, 999_999_999, T0, T0 // 1000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    head = shb() + idb(tsresol=tsresol, tsoffset=tsoffset)
    both(library, head + b"".join(epb(tick, ETHERNET[0]) for tick in ticks))


def test_records_that_the_kernel_leaves_to_the_plain_reader(library: ctypes.CDLL) -> None:
    frame = ETHERNET[0]
    old = struct.pack("<HHIIII", 0, 0, T0 >> 32, T0 & 0xFFFFFFFF, len(frame), len(frame)) + frame
    odd = [spb(frame), block(2, old), isb(7, 3), block(0xBAD, b"?"), block(6, b"\0" * 8), idb(), shb(">")[:-4]]
    both(library, shb() + idb() + b"".join(epb(T0, frame) + one for one in odd))
    late = struct.pack("<II", 1_700_000_000, 1_500_000)
    file = pcap(*((T0 + i, frame) for i in range(3)), nano=False)
    both(library, file[:24] + late + file[32:])


def test_blocks_of_impossible_size(library: ctypes.CDLL) -> None:
    frame = ETHERNET[0]
    for room in ((16 << 20) - 32 - len(frame), 16 << 20):
        head = struct.pack("<IIIII", 0, T0 >> 32, T0 & 0xFFFFFFFF, len(frame), len(frame))
        for kind in (6, 0xBAD):
            large = block(kind, head + frame + b"\0" * room)
            assert both(library, shb() + idb() + epb(T0, frame) + large + epb(T0, frame))


def test_times_that_step_back_are_found_alike(library: ctypes.CDLL) -> None:
    rng = random.Random(6)
    times = [rng.choice([T0, 0, 1, (1 << 63) - 1, T0 - 5]) + rng.randrange(2) * -1 for _ in range(200)]
    packets = b"".join(epb(max(0, time), ETHERNET[0], interface=rng.randrange(2)) for time in times)
    seen = both(library, shb() + idb() + idb(tsoffset=-9_000_000_000) + packets)
    assert seen is not None
    assert len(seen[1].steps_back) == 2
    assert not seen[1].in_order


def mutant(original: bytes, rng: random.Random) -> bytes:
    """A damaged copy: flipped bits, words of extreme value, pieces cut out or doubled."""
    changed = bytearray(original)
    for _ in range(rng.choice([1, 1, 2, 8, 40])):
        at = rng.randrange(max(20, len(changed)))
        change = rng.randrange(4)
        if change == 0:
            changed[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in changed[at : at + 1])
        elif change == 1:
            changed[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80", b"\x0a\x0d\x0d\x0a"])
        elif change == 2:
            del changed[at : at + rng.randrange(1, 64)]
        else:
            changed[at:at] = changed[at : at + rng.randrange(1, 64)]
    return bytes(changed)


def originals() -> list[bytes]:
    small = [frame for frame in ETHERNET if len(frame) < 200]
    return [
        traffic(25, seed=2),
        shb(">") + idb(">") + b"".join(epb(T0 + i, frame, ">") for i, frame in enumerate(small)),
        pcap(*((T0 + i, frame) for i, frame in enumerate(ETHERNET))),
        *(
            pcap(*((T0 + i, frame) for i, frame in enumerate(frames * 5)), order=">", nano=False, linktype=linktype)
            for linktype, frames in BY_LINKTYPE.items()
        ),
    ]


@pytest.mark.soak
def test_mutated_files(library: ctypes.CDLL, repeats: Callable[[int, int], int]) -> None:
    rng = random.Random(11)
    files = originals()
    compared = 0
    for index in range(repeats(500, 10_000)):
        compared += both(library, mutant(files[index % len(files)], rng)) is not None
    assert compared > repeats(400, 8_000)


@settings(max_examples=150, deadline=None)
@given(
    frames=st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 3), st.sampled_from(ETHERNET) | st.binary(max_size=80)),
        max_size=12,
    ),
    order=st.sampled_from("<>"),
    resolutions=st.lists(st.sampled_from([6, 9, 12, 0x88, 0x9E]), min_size=1, max_size=3),
)
def test_arbitrary_frames_at_arbitrary_times(
    library: ctypes.CDLL, frames: list[tuple[int, int, bytes]], order: str, resolutions: list[int]
) -> None:
    head = shb(order) + b"".join(idb(order, tsresol=one) for one in resolutions)
    both(library, head + b"".join(epb(ticks, frame, order, interface=index) for ticks, index, frame in frames))


# --- choosing the engine ----------------------------------------------------------------------------------------------


def table_by(library: ctypes.CDLL | None, path: Path, monkeypatch: pytest.MonkeyPatch) -> FrameTable:
    monkeypatch.setattr("rig._native.load", lambda: library)
    return read_capture(path)


def test_the_table_is_the_same_with_and_without_the_kernel(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.pcapng"
    path.write_bytes(traffic(200, seed=4) + shb() + idb(tsoffset=-5) + epb(T0, ETHERNET[0]))
    slow, fast = (table_by(one, path, monkeypatch) for one in (None, library))
    for item in fields(FrameTable):
        a, b = getattr(slow, item.name), getattr(fast, item.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, item.name


def test_a_kernel_of_other_sources_is_not_loaded(library: ctypes.CDLL) -> None:
    # The library of these tests was built without the checksum that the package's build gives it.
    assert library.rig_sources() & 0xFFFFFFFF != _native.sources()


def test_the_plain_reader_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIG_NATIVE", "0")
    assert _native.load.__wrapped__() is None


# --- token headers ----------------------------------------------------------------------------------------------------


def token_capture(count: int, rng: random.Random) -> bytes:
    """token-v2 datagrams, a third of them damaged in one byte, some cut."""
    frames = []
    for index in range(count):
        kind = rng.choice([1, 2, 3, 4, 5])
        header = token_v2.Header(type=kind, request_id=index, sequence=index, boot_id=7, t_rx_ns=1 << 60 | index)
        datagram = bytearray(token_v2.encode(header, rng.randbytes(rng.choice([4, 8, 12, 33]))))
        if rng.randrange(3) == 0:
            datagram[rng.randrange(len(datagram))] ^= 1 << rng.randrange(8)
        if rng.randrange(5) == 0:
            # A wrong field under a right checksum.
            datagram[rng.choice([2, 16, 18])] ^= 0x55
            datagram[48:52] = struct.pack("<I", token_v2.header_crc(bytes(datagram[:52])))
        frames.append((T0 + index, ethernet(ipv4(udp(bytes(datagram[: rng.choice([20, 52, 999])]))))))
    return pcap(*frames, snaplen=rng.choice([97, 4000]))


@pytest.mark.parametrize("seed", range(6))
def test_token_headers_are_decoded_as_without_the_kernel(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    path = tmp_path / "file.pcap"
    path.write_bytes(token_capture(400, random.Random(seed)))
    table = table_by(library, path, monkeypatch)
    rows = tokens.udp_rows(table)
    fast = tokens.decode_v2(table, rows)
    monkeypatch.setattr("rig._native.load", lambda: None)
    slow = tokens.decode_v2(table, rows)
    assert np.array_equal(fast.reason, slow.reason)
    assert len(set(slow.reason.tolist())) >= 4
    for item in fields(tokens.Tokens):
        a, b = getattr(slow.tokens, item.name), getattr(fast.tokens, item.name)
        assert np.array_equal(a, b), item.name
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None), item.name


# --- large arrays in files --------------------------------------------------------------------------------------------

_ARRAYS = """
import ctypes, sys, threading
import numpy as np
from pathlib import Path
from rig import _native

if sys.argv[1] != "-":
    library = _native.declare(ctypes.CDLL(sys.argv[1]))
    _native.load = lambda: library
    from rig._native.arrays import keep_large_arrays_in_files
    assert keep_large_arrays_in_files(sys.argv[2])

def work(seed, found):
    rng = np.random.default_rng(seed)
    kept = []
    for size in (10, 130_000, 131_072, 1_000_000):
        one = rng.integers(0, 1 << 60, size)
        two = np.concatenate((np.sort(one), np.zeros(size, np.int64)))
        two.resize(3 * size, refcheck=False)
        two.resize(size // 2, refcheck=False)
        two.resize(2 * size, refcheck=False)
        kept.append(two)
    found[seed] = [int(array.sum()) for array in kept] + [hash(array.tobytes()) % 1 for array in kept]

found = {}
threads = [threading.Thread(target=work, args=(seed, found)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
work(9, found)
print(sorted(found.items()))
def anonymous_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
before = anonymous_kb()
held = np.ones(8_000_000)
print(anonymous_kb() - before < 10_000, file=sys.stderr)
"""


def test_large_arrays_in_files_hold_the_same_and_leave_nothing(library: ctypes.CDLL, tmp_path: Path) -> None:
    def run(kernel: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", _ARRAYS, kernel, str(tmp_path)], capture_output=True, text=True, check=True
        )
        return done.stdout, done.stderr.strip()

    plain_result, in_memory = run("-")
    result, in_files = run(library._name)
    assert result == plain_result
    assert (in_memory, in_files) == ("False", "True")
    assert list(tmp_path.iterdir()) == []


def test_without_a_usable_folder_arrays_stay_in_memory(library: ctypes.CDLL, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    program = _ARRAYS.replace("sys.argv[2]", repr(str(gone)))
    done = subprocess.run([sys.executable, "-c", program, library._name], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files for the fuzzers: what follows the headers, since the target itself tells the kernel of interfaces. Single
    frames too."""
    folder = tmp_path_factory.mktemp("seeds")
    many = pcap(*((T0 + i, ethernet(ipv4(udp(b"", sport=1 + i)))) for i in range(600)))
    files = [*originals(), token_capture(60, random.Random(1)), many]
    for index, contents in enumerate(files):
        head = 24 if contents[:4] != b"\n\r\r\n" else 0
        (folder / str(index)).write_bytes(contents[head:])
    for linktype, frames in BY_LINKTYPE.items():
        for index, frame in enumerate(frames):
            (folder / f"frame-{linktype}-{index}").write_bytes(frame)
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.soak
def test_mutated_bytes_under_sanitizers(seeds: list[str], tmp_path: Path, repeats: Callable[[int, int], int]) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    target = tmp_path / "fuzz"
    sanitizers = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    build = ["gcc", "-std=gnu11", *sanitizers, "-DOWN_LOOP", str(FUZZER), *C_SOURCES, "-o", str(target)]
    built = subprocess.run(build, capture_output=True, text=True)
    if "cannot find" in built.stderr and "asan" in built.stderr:
        pytest.skip("gcc has no sanitizer libraries")
    assert built.returncode == 0, built.stderr
    subprocess.run([target, str(repeats(1_500, 200_000)), "1", *seeds], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.soak
def test_coverage_guided_fuzzing(seeds: list[str], tmp_path: Path, repeats: Callable[[int, int], int]) -> None:
    # Debian's packages of one version come without the plain name.
    names = ["clang", *(f"clang-{version}" for version in range(25, 13, -1))]
    clang = next((name for name in names if shutil.which(name)), None)
    if clang is None:
        pytest.skip("clang is not installed: no coverage-guided fuzzing")
    target = tmp_path / "fuzz"
    sanitizers = ["-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    build = [clang, "-std=gnu11", *sanitizers, str(FUZZER), *C_SOURCES]
    built = subprocess.run([*build, "-o", str(target)], capture_output=True, text=True)
    if built.returncode != 0 and "libclang_rt" in built.stderr:
        pytest.skip("clang has no libFuzzer")
    assert built.returncode == 0, built.stderr
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in seeds:
        whole = [b"\0\0\0\1", b"\1\0\0\1", b"\2\1\0\2", b"\3\0\0\1"]
        single = [bytes([4, 0, linktype, 1]) for linktype in range(8)]
        for choice in single if Path(path).name.startswith("frame") else whole:
            (corpus / f"{Path(path).name}-{choice.hex()}").write_bytes(choice + Path(path).read_bytes())
    runs = [f"-runs={repeats(20_000, 1_000_000)}", "-seed=1", "-max_len=65536", f"-artifact_prefix={tmp_path}/"]
    subprocess.run([target, *runs, corpus], check=True, stderr=subprocess.DEVNULL)
