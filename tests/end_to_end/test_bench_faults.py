"""Whatever breaks on a bench: the run ends within the budgets of its phases, with the right verdict and a sentence.

Each case is a few lines: what is broken when, and what a bench engineer must be able to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from provocations import (
    capture,
    corrupt_identity,
    deaf,
    dies_before_its_banner,
    ended_early,
    fill_jetson,
    fill_records,
    flip_bits,
    garbage_elf,
    huge_image,
    identity_written,
    jetson,
    jetson_disk,
    kill_connection,
    lease_of_another,
    no_dumpcap,
    no_right_to_capture,
    other_user_key,
    port_taken_by_another,
    reboot_jetson,
    records_on,
    refuse_writes,
    reroute,
    retried,
    sealed,
    serial,
    step_clock,
    two_with_one_mac,
    unplug_port,
    untouched,
)
from provoked import SLACK_S, Case, run_case

pytestmark = pytest.mark.bench

ROOT = os.getuid() == 0
QUICK: dict[str, Any] = {"requests": 60}
LONG: dict[str, Any] = {"requests": 4000}
DYING: dict[str, Any] = {"requests": "4000, timeout: 30 ms", "limits": "{p50: {max: 30 ms}}"}
GIVES_UP = {"rig.jetson.spec.GIVE_UP_S": 1.0, "rig.collecting.ANSWER_S": 2.0}
"""So that losing all that is left takes seconds."""


# fmt: off
CASES = [
    # --- before anything moves ---------------------------------------------------------------------------------------
    Case("port-missing", "ERROR", "board", "preflight", ("/dev/serial/by-id/usb-gone does not exist", "next step"),
         before=serial("/dev/serial/by-id/usb-gone"), budgets={"rig.board.wires.PORT_BACK_S": 0.5}),
    Case("port-busy", "ERROR", "board", "preflight", ("is busy: held by pid", "python"),
         before=port_taken_by_another),
    Case("port-no-device", "ERROR", "board", "preflight", ("/etc/hostname is not a serial device",),
         before=serial("/etc/hostname")),
    Case("port-server-unreachable", "ERROR", "board", "preflight", ("cannot reach the serial server at",
         "Connection refused"), before=serial("socket://127.0.0.1:9")),
    Case("host-key-of-another", "ERROR", "jetson", "preflight", ("host key", "is not the pinned one",
         "pinned SHA256:", "host_key: ssh-ed25519"),
         before=jetson(host_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f")),
    Case("ssh-refused", "ERROR", "jetson", "preflight", ("cannot reach jetson@", "Connection refused",
         "that sshd runs"), before=jetson(port=2223)),
    Case("jetson-off", "ERROR", "jetson", "preflight", ("cannot reach jetson@", "unreachable", "check power"),
         before=lambda bench: bench.kill("sshd")),
    Case("ssh-frozen", "ERROR", "jetson", "preflight", ("did not answer within 3 s", "frozen or overloaded"),
         before=lambda bench: bench.freeze("sshd"), budgets={"rig.run.PREFLIGHT_S": 3.0}, slow=True),
    Case("login-refused", "ERROR", "jetson", "preflight", ("refuses the login of 'jetson'", "authorized_keys"),
         before=other_user_key),
    Case("no-python-on-jetson", "ERROR", "jetson", "preflight", ("python9", "jetson.python"),
         before=jetson(python="/usr/bin/python9")),
    Case("jetson-taken", "ERROR", "jetson", "preflight",
         ("Jetson busy: held by eve on far-away (run nightly.1) since", "wait for that run"),
         before=lease_of_another, also=untouched, root=True),
    Case("jetson-disk-full", "ERROR", "jetson", "preflight", ("disk full",), before=jetson_disk("size=16k"),
         root=True),
    Case("jetson-read-only", "ERROR", "jetson", "preflight", ("jetson@10.78.0.20", "work_dir"),
         before=jetson_disk("ro"), root=True),
    Case("interface-missing", "ERROR", "capture", "preflight", ("no interface 'enp9s0'", "there are:",
         "section `capture`"), before=capture("enp9s0")),
    Case("interface-down", "ERROR", "capture", "preflight", ("board-port is down", "ip link set board-port up"),
         before=lambda bench: bench.ip("link", "set", "board-port", "down")),
    Case("two-with-one-mac", "ERROR", "capture", "preflight", ("2 interfaces have the MAC address", "mirror0",
         "name it in section `capture`"), before=two_with_one_mac),
    Case("no-right-to-capture", "ERROR", "capture", "preflight", ("may not capture on board-port", "setcap"),
         before=no_right_to_capture, root=True),
    Case("no-dumpcap", "ERROR", "capture", "preflight", ("dumpcap could not be started", "apt-get install"),
         before=no_dumpcap),
    Case("record-disk-small", "ERROR", "rig", "preflight", ("free for records in", "a run wants 256 MiB",
         "--record-dir"), before=records_on("8m"), root=True),
    Case("image-is-garbage", "ERROR", "board", "preflight", ("app.elf",), firmware=garbage_elf),
    Case("variant-not-built", "ERROR", "plan", "preflight", ("'nobody_built_this' is not built", "built variants:",
         "make -C firmware"), plan={"variant": "nobody_built_this"}),
    # --- flash -------------------------------------------------------------------------------------------------------
    Case("image-too-big", "ERROR", "board", "flash", ("huge.bin", "covers the identity region"), firmware=huge_image),
    Case("rom-silent", "ERROR", "board", "flash", ("boot ROM did not answer 0x7F", "not one byte",
         "boot and reset lines"), before=reroute, at="flash", provoke=deaf,
         budgets={"rig.board.flash.an3155_exchange.SYNC_S": 2.0}),
    Case("emulator-frozen", "ERROR", "rig", "flash", ("the emulated board does not answer",), at="flash",
         provoke=lambda bench: bench.freeze("qemu-system-arm"), slow=True),
    Case("rom-refuses", "ERROR", "board", "flash", ("the boot ROM refused", "NACK at step"), before=reroute,
         at="flash!", provoke=refuse_writes, plan={"variant": "copy, flash: always"}),
    Case("port-unplugged-in-flash", "ERROR", "board", "flash", ("board lost", "cable"), before=reroute, at="flash!",
         provoke=unplug_port, plan={"variant": "copy, flash: always"}),
    Case("power-lost-in-flash", "ERROR", "board", "flash", ("the boot ROM stopped answering", "power, cable"),
         at="flash!", provoke=lambda bench: bench.emulated.lines.power(False),
         plan={"variant": "copy, flash: always"}),
    Case("line-flips-bits", "ERROR", "board", "flash", ("the boot ROM refused Write Memory", "tries"), before=reroute,
         at="flash!", provoke=flip_bits(1000), plan={"variant": "copy, flash: always"}),
    Case("one-bit-flipped-in-flash", "PASS", "", "", ("PASS alive",), before=reroute, at="flash!",
         provoke=flip_bits(1), plan={"variant": "zero_copy, flash: always"}, also=retried),
    Case("another-firmware-on-board", "ERROR", "board", "boot", ("not the board or the firmware", "build"),
         plan={"variant": "copy, flash: never"}),
    Case("identity-corrupt", "ERROR", "board", "boot", ("not the board or the firmware", "identity"),
         before=corrupt_identity, plan={"variant": "zero_copy, flash: never"}),
    Case("identity-corrupt-is-mended", "PASS", "", "", ("PASS alive",), before=corrupt_identity,
         also=identity_written, slow=True),
    # --- boot to network ---------------------------------------------------------------------------------------------
    Case("dead-before-banner", "FAIL", "", "alive", ("FAIL alive", "did not boot although its flash was verified"),
         before=lambda bench: bench.set("board", boot_budget=1_000_000_000), firmware=dies_before_its_banner),
    Case("model-missing", "ERROR", "jetson", "engine", ("there is no model file /nowhere/",),
         before=jetson(model_dir="/nowhere")),
    Case("engine-import-fails", "ERROR", "jetson", "engine", ("/usr/bin/python3 cannot import the engine",
         "jetson.python"), before=jetson(python="/usr/bin/python3")),
    Case("cable-out-before-traffic", "ERROR", "bench", "network", ("no carrier on board-port", "0 of",
         "plug the cable in"),
         before=lambda bench: bench.set("network_ready", budget=1_000_000_000), at="network",
         provoke=lambda bench: bench.emulated.set_link(False)),
    # --- traffic -----------------------------------------------------------------------------------------------------
    Case("clock-steps", "INCONCLUSIVE", "", "", ("the capture clock moved by", "INCONCLUSIVE answer-time",
         "PASS alive"), at="traffic!", provoke=step_clock, plan={"requests": 2000}),
    Case("runner-killed", "ERROR", "jetson", "traffic", ("the runner on jetson@", "was killed before `done`",
         "journalctl"), at="traffic!", provoke=lambda bench: bench.kill("runner-"), plan=LONG),
    Case("ssh-killed", "ERROR", "jetson", "traffic", ("the connection to jetson@", "was lost", "power"),
         at="traffic!", provoke=kill_connection, plan=LONG),
    Case("ssh-frozen-in-traffic", "ERROR", "jetson", "traffic", ("has been silent for 3 s",), at="traffic!",
         provoke=lambda bench: bench.freeze("sshd"), plan=LONG,
         budgets={"rig.jetson.runs.SILENCE_S": 3.0, "rig.run.TEARDOWN_S": 3.0}, slow=True),
    Case("jetson-reboots", "ERROR", "jetson", "traffic", ("the connection to jetson@", "was lost"), at="traffic!",
         provoke=reboot_jetson, plan=LONG, slow=True),
    Case("jetson-disk-fills", "ERROR", "jetson", "traffic", ("make room on the Jetson",),
         before=jetson_disk("size=600k"), at="traffic!", provoke=fill_jetson, plan=LONG, root=True),
    Case("dumpcap-killed", "ERROR", "capture", "traffic", ("dumpcap ended by itself in mid-run with SIGKILL",),
         at="traffic!", provoke=lambda bench: bench.kill("dumpcap"), plan=LONG, also=ended_early),
    Case("record-disk-fills", "ERROR", "capture", "traffic", ("disk",), before=records_on("4m"), at="traffic!",
         provoke=fill_records, plan=LONG, root=True, budgets={"rig.bench.checks.machine.LEAST_DISK": 1 << 20},
         slow=True, also=sealed),
    Case("interface-taken-down", "INCONCLUSIVE", "", "", ("board-port",), at="traffic!",
         provoke=lambda bench: bench.ip("link", "set", "board-port", "down"), plan=DYING,
         budgets=GIVES_UP, slow=True),
    Case("cable-out-in-traffic", "INCONCLUSIVE", "", "", ("carrier",), at="traffic!",
         provoke=lambda bench: bench.emulated.set_link(False), plan=DYING, budgets=GIVES_UP),
    Case("power-lost-in-traffic", "FAIL", "", "alive", ("FAIL alive",), at="traffic!",
         provoke=lambda bench: bench.emulated.lines.power(False), plan=DYING, budgets=GIVES_UP),
    Case("emulator-killed", "ERROR", "rig", "collect", ("emulator",), at="traffic!",
         provoke=lambda bench: bench.kill("qemu-system-arm"), plan=DYING, budgets=GIVES_UP),
    Case("port-unplugged-in-traffic", "ERROR", "board", "collect", ("board lost",), before=reroute, at="traffic!",
         provoke=unplug_port, plan=DYING, budgets=GIVES_UP),
    Case("bench-killed", "ERROR", "rig", "traffic", ("emulated bench has ended",), at="traffic!",
         provoke=lambda bench: bench.kill("rig-bench"), plan=LONG),
]
# fmt: on


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_bench_says_what_broke(
    case: Case, place, write_plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: Callable[[int, int], int]
) -> None:
    if case.slow and not repeats(0, 1):
        pytest.skip("takes long, and has a quicker relative: -m soak")
    if case.root and not ROOT:
        pytest.skip("provoking this needs root")
    monkeypatch.setenv("XDG_STATE_HOME", place.environment()["XDG_STATE_HOME"])
    for name, value in case.budgets.items():
        monkeypatch.setattr(name, value)
    outcome = run_case(case, write_plan(case.name, **(QUICK | case.plan)), tmp_path)
    said = outcome.text
    print(f"\n{case.name}: {outcome.seconds:.1f} s\n{said}")

    assert str(outcome.judged.verdict) == case.verdict, said
    if outcome.info is not None:
        for phase in outcome.info.phases:
            assert phase.duration_ns <= phase.budget_ns + (SLACK_S + outcome.late_s) * 1e9, phase
    if case.verdict == "ERROR" and outcome.info is not None and outcome.info.error is not None:
        error = outcome.info.error
        assert (error["side"], error["phase"]) == (case.side, case.phase), error
        assert error["hint"], f"no next step: {error}"
    words = " ".join(said.split())
    missing = [word for word in case.words if word not in words]
    assert not missing, said
    assert not re.search(r"Traceback|<[\w.]+ object at|Error\(", said), said
    if case.also is not None:
        assert outcome.info is not None
        case.also(outcome.info)
