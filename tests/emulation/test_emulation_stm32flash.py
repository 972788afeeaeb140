"""The board from the outside: Debian's stm32flash writes our firmware through the boot ROM, and the board comes up.

An independent tool on the serial line and the Linux stack's own ping: none of the rig's own protocols is used.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import serial
from emulated_files import ROOT, bench_file, on_jetson

from rig.emulation.bench import EmulatedBench, open_bench
from rig.plan.model import Impairment

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(shutil.which("stm32flash") is None, reason="stm32flash is not installed"),
]

APPLICATION = ROOT / "firmware" / "build" / "zero_copy" / "app.bin"

PING = """
import socket, struct, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
sock.settimeout(float(sys.argv[2]))
for sequence in range(int(sys.argv[1])):
    body = bytes(range(56))
    sent = time.monotonic_ns()
    sock.sendto(struct.pack(">BBHHH", 8, 0, 0, 0, sequence) + body, ("10.77.0.10", 0))
    try:
        answer = sock.recv(2000)
    except TimeoutError:
        print("lost")
        continue
    assert answer[8:] == body and struct.unpack(">H", answer[6:8])[0] == sequence, answer
    print(time.monotonic_ns() - sent)
"""


def identity_block() -> bytes:
    address = socket.inet_aton
    block = struct.pack(
        "<4sHH6sH4s4s4s4s16s12s",
        *(b"RGID", 1, 64, bytes.fromhex("025249470010"), 5005),
        *(address("10.77.0.10"), address("255.255.255.0"), bytes(4), address("10.77.0.20"), b"under-test", bytes(12)),
    )
    return block + struct.pack("<I", zlib.crc32(block))


def stm32flash(bench: EmulatedBench, *arguments: str) -> str:
    bench.lines.set_boot(True)
    bench.lines.set_reset(True)
    bench.lines.set_reset(False)
    command = ["stm32flash", "-m", "8n1", "-b", "921600", *arguments, bench.bench.board.serial.port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    bench.lines.set_boot(False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def flashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedBench]:
    folder = tmp_path_factory.mktemp("flashed")
    identity = folder / "identity.bin"
    identity.write_bytes(identity_block())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with open_bench(bench_file()) as bench:
            stm32flash(bench, "-w", str(APPLICATION), "-v", "-S", "0x08000000")
            stm32flash(bench, "-w", str(identity), "-v", "-S", "0x08020000:64")
            boot(bench)
            yield bench


def boot(bench: EmulatedBench) -> str:
    """Reset into the application; returns its banner once it is ready."""
    with serial.Serial(bench.bench.board.serial.port, 115_200, timeout=10) as port:
        bench.lines.set_reset(True)
        bench.lines.set_reset(False)
        banner = port.readline().decode()
        while (line := port.readline()) != b"ready\r\n":
            assert line, f"no `ready` after {banner!r}"
    return banner


def ping(bench: EmulatedBench, count: int, folder: Path, patience_s: float = 10) -> list[int | None]:
    """Round trips from the Jetson to the board in ns, None where no answer came."""
    done = on_jetson(bench, f"/usr/bin/python3 -I -S -c '{PING}' {count} {patience_s}", folder / "known_hosts")
    assert done.returncode == 0, done.stderr.decode()
    return [None if line == "lost" else int(line) for line in done.stdout.decode().split()]


def test_independent_flash_tool_reads_back_what_it_wrote(flashed: EmulatedBench, tmp_path: Path) -> None:
    size = APPLICATION.stat().st_size
    copy = tmp_path / "copy.bin"
    stm32flash(flashed, "-r", str(copy), "-S", f"0x08000000:{size}")
    assert copy.read_bytes() == APPLICATION.read_bytes()
    boot(flashed)


def test_board_says_who_it_is(flashed: EmulatedBench) -> None:
    banner = dict(part.split("=", 1) for part in boot(flashed).split()[1:])
    assert (banner["identity"], banner["name"], banner["mac"]) == ("ok", "under-test", "02:52:49:47:00:10")
    assert banner["ip"] == "10.77.0.10"


def test_board_answers_the_jetson(flashed: EmulatedBench, tmp_path: Path) -> None:
    assert None not in ping(flashed, 20, tmp_path)


def test_image_outlives_a_power_cycle(flashed: EmulatedBench, tmp_path: Path) -> None:
    with serial.Serial(flashed.bench.board.serial.port, 115_200, timeout=10) as port:
        flashed.lines.power(False)
        flashed.lines.set_reset(True)
        flashed.lines.power(True)
        port.timeout = 0.3
        assert port.readline() == b"", "a board that is held in reset says nothing"
        port.timeout = 10
        flashed.lines.set_reset(False)
        assert b"reset=cold" in port.readline()
        while port.readline() != b"ready\r\n":
            pass
    assert None not in ping(flashed, 3, tmp_path)


def test_relay_delay_moves_the_round_trip_by_twice_its_amount(flashed: EmulatedBench, tmp_path: Path) -> None:
    plain = shortest(ping(flashed, 41, tmp_path))
    flashed.set_impairment([Impairment.model_validate({"delay": "5 ms"})])
    try:
        delayed = shortest(ping(flashed, 41, tmp_path))
    finally:
        flashed.set_impairment([])
    assert delayed - plain == pytest.approx(10_000_000, rel=0.1)


def test_relay_loses_each_fourth_ping(flashed: EmulatedBench, tmp_path: Path) -> None:
    ping(flashed, 1, tmp_path)  # so that no ARP is among the frames counted
    rule = {"direction": "from-board", "loss": "100 %", "select": {"ethertype": 0x0800, "every": 4}}
    flashed.set_impairment([Impairment.model_validate(rule)])
    try:
        answers = ping(flashed, 8, tmp_path, patience_s=2.0)
    finally:
        flashed.set_impairment([])
    assert [answer is None for answer in answers] == [False, False, False, True] * 2


def test_unplugged_board_knows_it_is_silent_and_comes_back(flashed: EmulatedBench, tmp_path: Path) -> None:
    with serial.Serial(flashed.bench.board.serial.port, 115_200, timeout=10) as port:
        flashed.set_link(False)
        assert port.readline() == b"link down\r\n"
        assert ping(flashed, 1, tmp_path, patience_s=0.5) == [None]
        flashed.set_link(True)
        assert port.readline() == b"link up\r\n"
    assert None not in ping(flashed, 3, tmp_path)


def shortest(values: list[int | None]) -> int:
    """A busy host moves the others."""
    answered = [value for value in values if value is not None]
    assert len(answered) == len(values), "a ping was lost"
    return min(answered)
