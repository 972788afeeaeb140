"""The doctor at work: on the emulated bench, on one that is in use, and on a hardware bench with everything missing."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.bench.checks import Finding, Site, board, machine
from rig.bench.checks.capture import interface
from rig.bench.checks.routes import mac_addresses
from rig.bench.doctor import CHECKS, preflight, rendered
from rig.bench.host import LocalHost
from rig.bench.lease import BenchLease
from rig.bench.load import hardware_bench, load_bench
from rig.deadline import Deadline
from rig.errors import BenchError, RigError
from rig.session import Rig

ROOT = Path(__file__).resolve().parents[2]

NOTHING_THERE = """\
bench: lab-0
uncertainty: {declared: 20 us}
board:
  serial: {port: /dev/rig-test-no-such-port}
  reset: {driver: command, on: {command: [rig-test-no-such-program]}, off: {command: ['true']}}
  identity: {name: lab-0, mac: '02:00:00:00:00:03', address: 192.0.2.10}
jetson:
  host: 127.0.0.1
  port: 1
  user: rig
  key: %s
  host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f
  bench_address: 192.0.2.20
capture: {point: inline, interface: nosuch0}
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A hardware bench of which nothing exists; its key may be read by everybody."""
    key = tmp_path / "key"
    key.write_text("not a key")
    key.chmod(0o644)
    path = tmp_path / "lab-0.yaml"
    path.write_text(NOTHING_THERE % key)
    return path


def doctor(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "rig.cli", "doctor", "--json", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert [check["name"] for check in report["checks"]] == [check.name for check in CHECKS]
    return done.returncode, report


def states(report: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in report["checks"]}


def found(report: dict[str, Any], name: str) -> str:
    return next(f"{check['found']} {check['fix']}" for check in report["checks"] if check["name"] == name)


@pytest.mark.bench
def test_the_emulated_bench_is_healthy(tmp_path: Path) -> None:
    code, report = doctor("--record-dir", tmp_path)
    seen = states(report)
    about_the_machine = {"packages", "governor", "disk", "clock"}
    assert (code, report["ok"]) == (0, True)
    assert {name: state for name, state in seen.items() if state != "ok" and name not in about_the_machine} == {
        "lab-commands": "skipped"
    }
    assert "SHA256:" in found(report, "ssh")
    assert "10.77.0.20 → eth0 → 10.77.0.10" in found(report, "bench-route")


def test_a_bench_in_use_names_its_holder_and_the_rest_is_skipped() -> None:
    with BenchLease("emulated"):
        code, report = doctor()
    seen = states(report)
    assert (code, seen["bench"], seen["ssh"], seen["interface"]) == (3, "fail", "skipped", "skipped")
    assert f"pid {os.getpid()}" in found(report, "bench")
    assert "since 20" in found(report, "bench")


def test_everything_missing_is_told_at_once_each_with_its_fix(lab: Path) -> None:
    code, report = doctor("--bench", lab)
    seen = states(report)
    assert code == 3
    failed = ("lab-commands", "serial-port", "interface", "ssh-key", "ssh")
    assert [seen[name] for name in failed] == ["fail"] * len(failed)
    assert "rig-test-no-such-program" in found(report, "lab-commands")
    assert "/dev/rig-test-no-such-port does not exist" in found(report, "serial-port")
    assert "no interface 'nosuch0'" in found(report, "interface")
    assert "mode 0644" in found(report, "ssh-key")
    assert "chmod 600" in found(report, "ssh-key")
    skipped = {name for name, state in seen.items() if state == "skipped"}
    assert skipped >= {"permission", "nic-offloads", "jetson-lease", "bench-route", "engine", "models"}
    assert "see `ssh` above" in found(report, "engine")


def test_a_hardware_bench_in_use_is_looked_at_from_outside(lab: Path) -> None:
    with BenchLease("lab-0"):
        _, report = doctor("--bench", lab)
    seen = states(report)
    assert (seen["bench"], seen["serial-port"], seen["interface"], seen["ssh"]) == ("fail", "fail", "fail", "skipped")


def test_lines_for_people_carry_the_fix_below(lab: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rig.cli", "doctor", "--bench", str(lab)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("fail    ssh-key "))
    assert lines[at + 1].strip().startswith("fix: run `chmod 600")
    assert lines[-1].endswith("skipped")
    assert "5 fail" in lines[-1]


def test_a_fix_of_several_lines_stays_in_its_column() -> None:
    check = next(check for check in CHECKS if check.name == "ssh")
    text = rendered(
        check, Finding("fail", "not the pinned one", "put in the new key:\n    host_key: ssh-ed25519 AA"), colour=False
    )
    assert text.splitlines() == [
        "fail    ssh               not the pinned one",
        "                          fix: put in the new key:",
        "                               host_key: ssh-ed25519 AA",
    ]
    assert rendered(check, Finding("ok", "fine"), colour=True) == "\x1b[32mok     \x1b[0m ssh               fine"


def test_a_faulty_bench_file_is_the_command_lines_business(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("bench: x\nnic: {disable: [ofloads]}\n")
    done = subprocess.run(
        [sys.executable, "-m", "rig.cli", "doctor", "--bench", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "ofloads" in done.stderr


def test_every_check_is_documented_in_order_with_its_side_and_place() -> None:
    rows = re.findall(r"^\| (`.+?`) \| (\w+) \| .* \| *(yes)? *\|$", (ROOT / "docs" / "doctor.md").read_text(), re.M)
    documented = [(name.strip(" `"), side, bool(yes)) for names, side, yes in rows for name in names.split(",")]
    assert documented == [(check.name, check.side.side, check.preflight) for check in CHECKS]


def site_with_port(lab: Path, port: str, folder: Path) -> Site:
    file = load_bench(lab)
    bench = hardware_bench(file)
    serial = bench.board.serial.model_copy(update={"port": port})
    bench = bench.model_copy(update={"board": bench.board.model_copy(update={"serial": serial})})
    return Site(ROOT, folder, file, "lab-0", Deadline.after(20), bench=bench, host=LocalHost())


def test_a_port_that_another_program_has_open_names_it(lab: Path, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    port = os.ttyname(theirs)
    os.close(theirs)
    site = site_with_port(lab, port, tmp_path)
    assert board.serial_port(site).state == "ok"
    program = "import sys; port = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        finding = board.serial_port(site)
        assert (finding.state, finding.fix) == ("fail", f"end that program: kill {other.pid}")
    finally:
        other.communicate(b"")
        os.close(ours)


def test_a_port_server_is_asked_only_by_who_has_the_bench(lab: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        site = site_with_port(lab, f"socket://127.0.0.1:{server.getsockname()[1]}", tmp_path)
        assert board.serial_port(site).state == "skipped"
        site.opened = Rig.of(lab)
        assert board.serial_port(site).state == "ok"
    finding = board.serial_port(site)
    assert finding.state == "fail"
    assert "refused" in finding.found


# --- preflight --------------------------------------------------------------------------------------------------------


def test_preflight_raises_the_error_of_the_side_that_fails(lab: Path, tmp_path: Path) -> None:
    file = load_bench(lab)
    bench = hardware_bench(file)
    site = Site(ROOT, tmp_path, file, "lab-0", Deadline.after(20), bench=bench, host=LocalHost())
    with pytest.raises(BenchError) as caught:
        preflight(site)
    assert "rig-test-no-such-program" in caught.value.what
    assert caught.value.hint


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig.of(ROOT / "benches" / "emulated.yaml") as rig:
        yield rig


@pytest.mark.bench
def test_requests_that_would_miss_the_bench_segment_end_in_preflight(rig: Rig, tmp_path: Path) -> None:
    deadline = Deadline.after(30)
    session = rig.jetson(deadline)
    preflight(Site.of(rig, session, ROOT, tmp_path, deadline))
    elsewhere = rig.bench.jetson.model_copy(update={"bench_address": "10.77.0.99"})
    rig.bench = rig.bench.model_copy(update={"jetson": elsewhere})
    with pytest.raises(RigError, match=r"from 10\.77\.0\.20 on eth0") as caught:
        preflight(Site.of(rig, session, ROOT, tmp_path, deadline))
    assert caught.value.side == "jetson"


@pytest.mark.bench
def test_preflight_hands_its_warnings_on_each_on_one_line_with_its_fix(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "AMPLE_DISK", 1 << 60)
    deadline = Deadline.after(30)
    [warning] = preflight(Site.of(rig, rig.jetson(deadline), ROOT, tmp_path, deadline))
    assert re.fullmatch(rf"disk: .* GiB free for records in {tmp_path} \(fix: du -sh .*--record-dir\)", warning)


@pytest.mark.bench
def test_twin_mac_addresses_are_found(rig: Rig, tmp_path: Path) -> None:
    deadline = Deadline.after(30)
    apart = mac_addresses(Site.of(rig, rig.jetson(deadline), ROOT, tmp_path, deadline))
    assert (apart.state, "eth0 of the Jetson 02:52:49:47:00:20 and 3 more" in apart.found) == ("ok", True)
    ours = rig.host.run(["ip", "link", "set", "rig0p", "address", rig.bench.board.identity.mac], deadline)
    assert ours.returncode == 0, ours.stderr
    on_segment = mac_addresses(Site.of(rig, rig.jetson(deadline), ROOT, tmp_path, deadline))
    assert (on_segment.state, "rig0p of the rig have 02:52:49:47:00:10" in on_segment.found) == ("fail", True)
    by_mac = rig.bench.capture.model_copy(update={"interface": rig.bench.board.identity.mac})
    for name in ("mirror0", "tap-a"):
        rig.host.run(["ip", "link", "set", name, "address", rig.bench.board.identity.mac], deadline)
    rig.bench = rig.bench.model_copy(update={"capture": by_mac})
    named = interface(Site.of(rig, rig.jetson(deadline), ROOT, tmp_path, deadline))
    assert (named.state, "interfaces have the MAC address 02:52:49:47:00:10" in named.found) == ("fail", True)
    assert "name it in section `capture`" in named.fix


# --- NICs over sessions -----------------------------------------------------------------------------------------------


def gro(rig: Rig) -> str:
    """GRO at the capture point, the one feature of an emulated NIC that these tests turn."""
    shown = rig.host.run(["ethtool", "-k", "board-port"], Deadline.after(10)).stdout.decode()
    return re.findall(r"^generic-receive-offload: (\w+)", shown, re.MULTILINE)[0]


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A bench that stays up, as hardware does, with GRO on; two files for it, `calm` disables offloads."""
    plain, calm = tmp_path / "plain.yaml", tmp_path / "calm.yaml"
    plain.write_text((ROOT / "benches" / "emulated.yaml").read_text(encoding="utf-8"))
    calm.write_text(plain.read_text() + "nic: {disable: [offloads]}\n")
    words = [sys.executable, "-m", "rig.cli", "bench", "up", "--bench", str(plain)]
    up = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        assert "is up" in up.stdout.readline()
        with Rig.of(plain) as rig:
            rig.host.run(["ethtool", "-K", "board-port", "gro", "on"], Deadline.after(10))
            assert gro(rig) == "on"
        yield plain, calm
    finally:
        up.terminate()
        up.communicate()


@pytest.mark.bench
def test_nics_are_set_for_a_session_and_put_back_at_its_end(standing: tuple[Path, Path]) -> None:
    plain, calm = standing
    with Rig.of(calm) as rig:
        record = rig.nics(["board-port"], Deadline.after(20))
        assert gro(rig) == "off"
        assert list(record["interfaces"]) == ["board-port", "rig0p", "eth0p"]
    with Rig.of(plain) as rig:
        assert gro(rig) == "on"
        assert (
            rig.nics(["board-port"], Deadline.after(20))["interfaces"]["board-port"]["offloads"][
                "generic-receive-offload"
            ]
            == "on"
        )


KILLED = """\
import sys
from pathlib import Path
from rig.deadline import Deadline
from rig.session import Rig
with Rig.of(Path(sys.argv[1])) as rig:
    rig.nics(["board-port"], Deadline.after(20))
    print("set", flush=True)
    sys.stdin.read()
"""


@pytest.mark.bench
def test_a_killed_session_is_told_by_the_doctor_and_undone_by_the_next_run(standing: tuple[Path, Path]) -> None:
    plain, calm = standing
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(calm)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "set\n"
    child.kill()
    child.communicate()
    code, report = doctor("--bench", plain)
    assert (code, states(report)["nic-journal"]) == (0, "warn")
    assert "sudo ethtool -K board-port" in found(report, "nic-journal")
    with Rig.of(plain) as rig:
        assert gro(rig) == "off"
        rig.nics(["board-port"], Deadline.after(20))
        assert gro(rig) == "on"
    assert states(doctor("--bench", plain)[1])["nic-journal"] == "ok"


PLAN = """\
plan: short
firmware: {variant: zero_copy}
inference: {requests: 30, warmup: 2, infer_tokens: 1, load: {closed: {in_flight: 1}}}
flows:
  requests: {from: jetson, to: board, udp.dstport: 5005, protocol: token-v2}
  answers: {from: board, to: jetson, udp.srcport: 5005, protocol: token-v2}
checks:
  no-loss: {loss: {of: requests, answered_by: answers}, limits: {count: {max: 0}}}
"""


@pytest.mark.bench
def test_a_run_records_how_its_nics_were_set(standing: tuple[Path, Path], tmp_path: Path) -> None:
    plain, calm = standing
    plan = tmp_path / "short.plan.yaml"
    plan.write_text(PLAN)
    records = tmp_path / "records"
    words = [sys.executable, "-m", "rig.cli", "run", plan, "--bench", calm, "--record-dir", records]
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = records.glob("*/*/run.json")
    nic = json.loads(run.read_text())["nic"]
    assert nic["disabled"] == ["offloads"]
    assert nic["interfaces"]["board-port"]["offloads"]["generic-receive-offload"] == "off"
    assert {(c["interface"], c["setting"], c["was"]) for c in nic["changes"]} >= {
        ("board-port", "generic-receive-offload", "on")
    }
    with Rig.of(plain) as rig:
        assert gro(rig) == "on"
