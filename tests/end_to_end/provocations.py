"""The ways in which the tests break a bench: each takes the Bench of a run, or makes something that does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from provoked import Bench, Provocation, fill_up, path_with, small_disk

from rig.capture import clock
from rig.emulation.state import BenchState
from rig.project import FIRMWARE
from rig.record import RunInfo


def jetson(**changes: Any) -> Provocation:
    return lambda bench: bench.set("jetson", **changes)


def serial(port: str) -> Provocation:
    return lambda bench: bench.set("board.serial", port=port)


def capture(interface: str) -> Provocation:
    return lambda bench: bench.set("capture", interface=interface)


def port_taken_by_another(bench: Bench) -> None:
    hold = "import serial, sys; port = serial.Serial(sys.argv[1], exclusive=True); print('open', flush=True); input()"
    port = bench.rig.bench.board.serial.port
    other = subprocess.Popen(
        [sys.executable, "-c", hold, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"
    bench.cleanup.callback(other.communicate, "\n")


def other_user_key(bench: Bench) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = bench.folder / "key"
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    key.chmod(0o600)
    bench.set("jetson", key=str(key))


def two_with_one_mac(bench: Bench) -> None:
    mac = "02:52:49:47:00:99"
    for name in ("tap-a", "mirror0"):
        bench.ip("link", "set", name, "address", mac)
    bench.set("capture", interface=mac)


def no_right_to_capture(bench: Bench) -> None:
    script = '#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/dumpcap "$@"\n'
    set_path(bench, path_with(bench.folder, "dumpcap", script))


def no_dumpcap(bench: Bench) -> None:
    set_path(bench, path_with(bench.folder, "dumpcap", None))


def set_path(bench: Bench, path: str) -> None:
    bench.cleanup.enter_context(pytest.MonkeyPatch.context()).setenv("PATH", path)


def jetson_disk(options: str) -> Provocation:
    return lambda bench: bench.on_jetson("mount", "-t", "tmpfs", "-o", options, "tmpfs", "/run/jetson")


def fill_jetson(bench: Bench) -> None:
    fill_up(Path(f"/proc/{bench.processes('sshd')[0]}/root/run/jetson"))


def records_on(size: str) -> Provocation:
    def mount(bench: Bench) -> None:
        bench.cleanup.enter_context(small_disk(bench.folder / "records", size))

    return mount


def fill_records(bench: Bench) -> None:
    fill_up(bench.folder / "records")


def ended_early(info: RunInfo) -> None:
    """The traffic was not carried to its end."""
    assert info.phases[-1].note.startswith("runner: aborted by the rig"), info.phases


def sealed(info: RunInfo) -> None:
    """The record says how the run ended, and what it holds."""
    assert info.outcome == "error"
    assert "capture.pcapng" in info.files


def reroute(bench: Bench) -> None:
    bench.reroute_serial()


def unplug_port(bench: Bench) -> None:
    assert bench.line is not None
    bench.line.unplug()


def deaf(bench: Bench) -> None:
    """Nothing of what the board says arrives."""
    assert bench.line is not None
    bench.line.to_rig = lambda data: b""


def refuse_writes(bench: Bench) -> None:
    """Every ACK of the ROM becomes a NACK once data flows."""
    assert bench.line is not None
    bench.line.to_rig = lambda data: data.replace(b"\x79", b"\x1f")


def flip_bits(blocks: int) -> Provocation:
    """One bit in each of the next `blocks` long writes of the rig."""
    left = [blocks]

    def flip(data: bytes) -> bytes:
        if left[0] and len(data) > 100:
            left[0] -= 1
            return bytes([data[0], data[1] ^ 0x10]) + data[2:]
        return data

    def provoke(bench: Bench) -> None:
        assert bench.line is not None
        bench.line.to_board = flip

    return provoke


def garbage_elf(folder: Path) -> Path:
    path = folder / "app.elf"
    path.write_bytes(b"\x7fELF" + bytes(range(256)) * 4)
    return path


def huge_image(folder: Path) -> Path:
    path = folder / "huge.bin"
    path.write_bytes((FIRMWARE / "zero_copy" / "app.bin").read_bytes().ljust(200 << 10, b"\x5a"))
    return path


def dies_before_its_banner(folder: Path) -> Path:
    """The build of zero_copy whose first instructions are undefined ones (udf #0)."""
    image = bytearray((FIRMWARE / "zero_copy" / "app.bin").read_bytes())
    entry = (int.from_bytes(image[4:8], "little") & ~1) - (int.from_bytes(image[4:8], "little") & 0xFF000000)
    image[entry : entry + 8] = b"\x00\xde" * 4
    path = folder / "dead.bin"
    path.write_bytes(image)
    return path


def retried(info: RunInfo) -> None:
    assert info.firmware["flash"]["retries"] >= 1
    assert info.firmware["flash"]["verified"]


def reboot_jetson(bench: Bench) -> None:
    """Everything on the Jetson ends."""
    runner = bench.processes("runner-")
    bench.kill("sshd")
    for pid in runner:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def corrupt_identity(bench: Bench) -> None:
    """A byte of the identity block in the emulated flash (sector 4) is lost."""
    with (BenchState.of("emulated", None).folder / "ddr.img").open("r+b") as flash:
        flash.seek(0x20000 + 8)
        flash.write(bytes(1))


def identity_written(info: RunInfo) -> None:
    assert info.firmware["flash"]["identity_written"]


def step_clock(bench: Bench) -> None:
    """An NTP client steps the clock of this machine by 100 ms, as its readers see it."""
    patch = bench.cleanup.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(clock, "offset_ns", lambda now=clock.offset_ns: (now()[0] + 100_000_000, now()[1]))


def lease_of_another(bench: Bench) -> None:
    """A live run of another rig holds the Jetson."""
    beat = """if True:
        import json, os, select, sys, time
        os.makedirs("/run/jetson/.rig", mode=0o700, exist_ok=True)
        stat = open("/proc/self/stat").read()
        lease = {"owner": "eve", "host": "far-away", "run_id": "nightly.1", "since_utc": "2026-01-31T02:00:00Z"}
        lease |= {"pid": os.getpid(), "start_time": int(stat[stat.rfind(")") + 2:].split()[19])}
        lease |= {"boot_id": open("/proc/sys/kernel/random/boot_id").read().strip()}
        lease |= {"pid_namespace": os.readlink("/proc/self/ns/pid")}
        def beat():
            with open("/run/jetson/.rig/lease.new", "w") as stream:
                json.dump(lease | {"heartbeat_ns": time.monotonic_ns()}, stream)
            os.replace(stream.name, "/run/jetson/.rig/lease.json")
        beat()
        print("taken", flush=True)
        while not select.select([sys.stdin], [], [], 1)[0]:
            beat()
    """
    sshd = bench.processes("sshd")[0]
    other = subprocess.Popen(
        ["nsenter", "-t", str(sshd), "-m", "-n", "-p", sys.executable, "-c", beat],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "taken\n"
    bench.cleanup.callback(other.wait)
    bench.cleanup.callback(other.kill)


def untouched(info: RunInfo) -> None:
    """Neither the NICs nor the board's port were taken."""
    assert info.nic == {}
    assert "board.log" not in info.files


def kill_connection(bench: Bench) -> None:
    _listener, *sessions = bench.processes("sshd")
    for pid in sessions:
        with contextlib.suppress(ProcessLookupError):  # the monitor takes its unprivileged half along
            os.kill(pid, signal.SIGKILL)
