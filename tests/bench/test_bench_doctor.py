"""Every check of the doctor in all its outcomes, from facts as tools print them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.bench.checks import Finding, board, capture, clock, jetson, machine, routes
from rig.bench.nic import NicState
from rig.bench.nic_settings import Change


def state_and(finding: Finding, *words: str) -> str:
    """The finding's state, once all words stand in it."""
    text = f"{finding.found} {finding.fix}"
    assert [word for word in words if word not in text] == []
    assert bool(finding.fix) == (finding.state in ("warn", "fail")), "a fix stands where something is to be done"
    return finding.state


# --- machine ----------------------------------------------------------------------------------------------------------

LOCK = """\
# made by a tool
annotated-types==0.8.0 \\
    --hash=sha256:13b2beaad985e05e2d6407ee4c4f35590b11f8d693a258a561055cac8f64cab7
numpy==2.4.6
only-there==1.0; sys_platform == 'win32'
"""


def test_python_version() -> None:
    assert state_and(machine.judge_python((3, 11, 2), "/usr/bin/python3"), "3.11.2") == "ok"
    assert state_and(machine.judge_python((3, 10, 9), "/usr/bin/python3"), "3.10.9", "apt-get") == "fail"


def test_packages_are_compared_with_the_lock() -> None:
    wanted = machine.parse_lock(LOCK)
    assert wanted == {"annotated-types": "0.8.0", "numpy": "2.4.6"}
    assert state_and(machine.judge_packages(wanted, wanted), "2 packages") == "ok"
    other = machine.judge_packages(wanted, {**wanted, "numpy": "1.0"})
    assert state_and(other, "numpy 1.0 (locked: 2.4.6)", "requirements.lock") == "warn"
    assert state_and(machine.judge_packages(wanted, {**wanted, "numpy": None}), "missing: numpy") == "fail"


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (b"Dumpcap (Wireshark) 4.0.17 (Git v4.0.17 packaged as 4.0.17-0+deb12u3).\n", "4.0.17"),
        (b"TShark (Wireshark) 4.0.17 (Git v4.0.17 packaged as 4.0.17-0+deb12u3).\n", "4.0.17"),
        (b"ip utility, iproute2-6.1.0, libbpf 1.1.2\n", "6.1.0"),
        (b"ip utility, iproute2-ss180129\n", "ss180129"),
        (b"ethtool version 6.1\n", "6.1"),
        (b"ethtool version 6\n", "6"),
        (b"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\n", "7.2.22"),
        (b"OpenSSH_9.2p1 Debian-2+deb12u7, OpenSSL 3.0.17 1 Jul 2025\n", "9.2p1"),
        (b"unknown option -- V\nOpenSSH_8.9p1 Ubuntu-3ubuntu0.10, OpenSSL 3.0.2 15 Mar 2022\n", "8.9p1"),
        (b"", ""),
    ],
)
def test_versions_of_tools(output: bytes, version: str) -> None:
    assert machine.parse_version(output) == version


def test_a_missing_tool_names_its_package_and_is_fatal_only_when_vital() -> None:
    seen = [(tool, "1.0") for tool in machine.TOOLS]
    assert state_and(machine.judge_tools(seen), "dumpcap 1.0, tshark 1.0") == "ok"
    no = [(tool, None if tool.name == "ethtool" else "1.0") for tool in machine.TOOLS]
    assert state_and(machine.judge_tools(no), "missing: ethtool", "apt-get install") == "warn"
    no = [(tool, None if tool.package == "tshark" else "1.0") for tool in machine.TOOLS]
    finding = machine.judge_tools(no)
    assert state_and(finding, "dumpcap (captures), tshark (") == "fail"
    assert finding.fix.endswith("--no-install-recommends tshark")


def test_firmware_builds() -> None:
    assert state_and(machine.judge_firmware(["copy"], True, emulated=True), "copy") == "ok"
    assert state_and(machine.judge_firmware(["copy"], False, emulated=True), "boot ROM", "make -C firmware") == "fail"
    assert state_and(machine.judge_firmware([], False, emulated=False), "--firmware") == "warn"


def test_programs_of_the_lab() -> None:
    assert state_and(machine.judge_commands({}), "no programs") == "ok"
    good: dict[str, tuple[str, machine.ProgramState]] = {"reset.on": ("uhubctl", "ok"), "reset.off": ("uhubctl", "ok")}
    assert machine.judge_commands(good).found == "uhubctl"
    bad = machine.judge_commands(
        {**good, "flash.command": ("st-flash", "missing"), "flash.read": ("st-flash", "missing")}
    )
    assert state_and(bad, "`st-flash` (board.flash.command, board.flash.read) is missing", "install st-flash") == "fail"
    blunt = machine.judge_commands({**good, "power.on": ("/opt/lab tools/pdu", "not executable")})
    assert state_and(blunt, "`/opt/lab tools/pdu` (board.power.on) is not executable") == "fail"
    assert blunt.fix == "chmod +x '/opt/lab tools/pdu'"


def test_programs_are_found_as_they_will_be_run_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pdu"
    assert machine.program_state(str(program)) == "missing"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    program.chmod(0o644)
    assert machine.program_state(str(program)) == "not executable"
    assert machine.program_state(str(tmp_path)) == "missing"
    program.chmod(0o755)
    assert machine.program_state(str(program)) == "ok"
    assert machine.program_state("pdu") == "missing"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.program_state("pdu") == "ok"
    assert not (tmp_path / "was-run").exists()


def test_disk() -> None:
    folder = Path("captures")
    assert state_and(machine.judge_disk(100 << 30, folder), "100.0 GiB") == "ok"
    assert state_and(machine.judge_disk(1 << 30, folder), "--record-dir") == "warn"
    assert state_and(machine.judge_disk(100 << 30, folder, writable=False), "may not write", "--record-dir") == "fail"
    assert state_and(machine.judge_disk(255 << 20, folder), "wants 256 MiB", "du -sh captures/*") == "fail"


def test_governor() -> None:
    assert machine.judge_governor({}).state == "ok"
    assert state_and(machine.judge_governor({"performance": 4}), "performance") == "ok"
    mixed = machine.judge_governor({"performance": 2, "powersave": 2})
    assert state_and(mixed, "performance, powersave", "scaling_governor") == "warn"


# --- clock ------------------------------------------------------------------------------------------------------------

GOOD = {"unix_s": 1_800_000_000, "status": 0x2001, "max_error_us": 12_345, "moved_ns": 300, "watched_ns": 10**9}
E_NS = 50_000


def test_clock() -> None:
    def judge(**facts: int | None) -> Finding:
        return clock.judge_clock(clock.ClockFacts(**{**GOOD, **facts}), E_NS)  # type: ignore[arg-type]

    assert state_and(judge(), "synchronised within 12 ms", "no step in 1.0 s") == "ok"
    assert state_and(judge(status=0x40), "not synchronised", "timedatectl") == "warn"
    assert state_and(judge(status=None), "refused") == "warn"
    assert state_and(judge(unix_s=86_400), "1970-01-02", "never set") == "fail"
    assert state_and(judge(moved_ns=-2_000_000), "stepped by -2.000 ms", "one time service only") == "warn"
    # 500 ppm of a second and e: the most that slewing may do.
    assert judge(moved_ns=550_000).state == "ok"
    assert judge(moved_ns=550_001).state == "warn"


# --- board ------------------------------------------------------------------------------------------------------------

BY_ID = "/dev/serial/by-id/usb-FTDI_FT232R_A50285BI-if00-port0"


def test_serial_port() -> None:
    def judge(usable: bool = True, holders: tuple[str, ...] = (), group: str = "dialout") -> Finding:
        return board.judge_port(board.PortFacts(BY_ID, "/dev/ttyUSB0", usable, group, holders))

    assert state_and(judge(), BY_ID, "(/dev/ttyUSB0)", "free") == "ok"
    assert state_and(judge(usable=False), "may not open", "usermod -aG dialout $USER", "log in again") == "fail"
    assert state_and(judge(usable=False, group=""), "usermod -aG dialout") == "fail"
    held = judge(holders=("pid 17 (minicom -D /dev/ttyUSB0)", "pid 99 (cat)"))
    assert state_and(held, "minicom -D /dev/ttyUSB0", "kill 17 99") == "fail"


def test_port_server() -> None:
    url = "rfc2217://lab-pc:4001"
    assert board.judge_port_server(url, None).state == "ok"
    assert state_and(board.judge_port_server(url, "Connection refused"), url, "Connection refused", "ser2net") == "fail"


FTDI = ("ID_BUS=usb", "ID_VENDOR_ID=0403", "ID_MODEL_ID=6001", "DEVNAME=/dev/ttyUSB0")


def grabbers(node: str, *running: str, udev: tuple[str, ...] = FTDI, policy: str = "strict") -> Finding:
    return board.judge_grabbers(board.GrabberFacts(node, frozenset(running), udev, policy))


def test_modem_manager_is_a_failure_where_the_board_makes_the_port_and_a_warning_elsewhere() -> None:
    acm = grabbers("/dev/ttyACM0", "ModemManager")
    assert state_and(acm, "AT commands", "systemctl disable --now ModemManager", 'ATTRS{idVendor}=="0403"') == "fail"
    assert "ENV{ID_MM_DEVICE_IGNORE}" in acm.fix
    assert state_and(grabbers("/dev/ttyUSB0", "ModemManager", policy="DEFAULT"), "AT commands") == "warn"


@pytest.mark.parametrize(
    ("node", "udev", "policy"),
    [
        ("/dev/ttyUSB0", FTDI, "strict"),
        ("/dev/ttyACM0", (*FTDI, "ID_MM_DEVICE_IGNORE=1"), "strict"),
        ("/dev/ttyACM0", (*FTDI, "ID_MM_PORT_IGNORE=1"), "default"),
        ("/dev/ttyACM0", FTDI, "WHITELIST-ONLY"),
        ("/dev/ttyACM0", FTDI, "allowlist-only"),
    ],
)
def test_modem_manager_that_leaves_the_port_alone_is_fine(node: str, udev: tuple[str, ...], policy: str) -> None:
    assert state_and(grabbers(node, "ModemManager", udev=udev, policy=policy), "leaves") == "ok"


def test_a_port_on_the_allow_list_is_probed() -> None:
    allowed = (*FTDI, "ID_MM_DEVICE_PROCESS=1")
    assert grabbers("/dev/ttyACM0", "ModemManager", udev=allowed, policy="allowlist-only").state == "fail"


def test_brltty_takes_the_chips_of_braille_displays() -> None:
    assert state_and(grabbers("/dev/ttyUSB0", "brltty"), "braille", "brltty-udev") == "warn"
    other = ("ID_VENDOR_ID=1fc9", "ID_MODEL_ID=0143")
    assert grabbers("/dev/ttyUSB0", "brltty", udev=other).state == "ok"
    assert grabbers("/dev/ttyUSB0", "brltty", udev=()).state == "warn"


def test_ports_that_are_no_usb_tty_are_nobodys_prey() -> None:
    assert grabbers("/dev/pts/3", "ModemManager", "brltty", policy="default").state == "ok"
    assert grabbers("rfc2217://h:1", "ModemManager", policy="default").state == "ok"
    assert "neither" in grabbers("/dev/ttyUSB0").found


def test_running_services_and_the_filter_policy_are_read_from_proc(tmp_path: Path) -> None:
    for pid, (name, words) in enumerate(
        [("systemd", "init"), ("ModemManager", "/usr/sbin/ModemManager\0--filter-policy=WHITELIST-ONLY\0")], 1
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(name + "\n")
        (folder / "cmdline").write_text(words)
    assert board.running_grabbers(tmp_path) == (frozenset({"ModemManager"}), "WHITELIST-ONLY")
    (tmp_path / "2" / "cmdline").write_text("/usr/sbin/ModemManager\0")
    assert board.running_grabbers(tmp_path) == (frozenset({"ModemManager"}), "strict")
    (tmp_path / "2" / "comm").write_text("bash\n")
    assert board.running_grabbers(tmp_path) == (frozenset(), "")


# --- capture ----------------------------------------------------------------------------------------------------------


def link(name: str, up: bool = True, carrier: bool = True) -> capture.LinkFacts:
    return capture.LinkFacts(name, name, "02:00:00:00:00:01", up, carrier)


def test_interfaces() -> None:
    assert state_and(capture.judge_interfaces([link("enp3s0")]), "enp3s0 02:00:00:00:00:01 up") == "ok"
    both = capture.judge_interfaces([link("t0", up=False), link("t1", up=False)])
    assert state_and(both, "t0, t1 are down", "ip link set t0 up && sudo ip link set t1 up") == "fail"
    assert state_and(capture.judge_interfaces([link("enp3s0", carrier=False)]), "no carrier on enp3s0") == "warn"
    remote = capture.judge_interfaces([link("eth0", up=False)], "on the Jetson: ")
    assert remote.fix.startswith("on the Jetson: sudo ip")


GRO = {"generic-receive-offload": "on", "tx-tcp-segmentation": "on", "large-receive-offload": "off [fixed]"}


def test_merging_of_received_frames_is_warned_of_and_that_of_sent_ones_is_not() -> None:
    finding = capture.judge_nic([NicState("a", offloads=GRO), NicState("b", offloads=GRO)], "offloads", False)
    assert state_and(finding, "a: generic-receive-offload on; b:", "disable: [offloads]") == "warn"
    assert "sudo ethtool -K a generic-receive-offload off; sudo ethtool -K b" in finding.fix
    assert "tx-tcp" not in finding.fix
    sending = NicState("a", offloads={"generic-segmentation-offload": "on", "tx-udp-segmentation": "on"})
    assert state_and(capture.judge_nic([sending], "offloads", False), "off on a") == "ok"


def test_what_a_run_switches_off_is_no_warning() -> None:
    finding = capture.judge_nic([NicState("a", offloads=GRO)], "offloads", True)
    assert state_and(finding, "generic-receive-offload on", "off while a run has the bench") == "ok"


def test_coalescing_and_eee() -> None:
    busy = NicState("a", coalescing={"adaptive-rx": "on", "rx-usecs": "125"}, eee="enabled - active")
    finding = capture.judge_nic([busy], "coalescing", False)
    assert state_and(finding, "rx-usecs 125", "sudo ethtool -C a adaptive-rx off rx-usecs 0") == "warn"
    assert state_and(capture.judge_nic([busy], "eee", False), "late", "sudo ethtool --set-eee a eee off") == "warn"
    assert state_and(capture.judge_nic([NicState("a")], "eee", False), "a have none") == "ok"


def test_pause_and_ring() -> None:
    flowing = NicState("a", pause={"autonegotiate": "on", "rx": "off", "tx": "on"})
    assert state_and(capture.judge_pause([flowing]), "on at a", "ethtool -A a autoneg off rx off tx off") == "warn"
    assert capture.judge_pause([NicState("a", pause={"rx": "off", "tx": "off"})]).found == "off"
    assert "not supported" in capture.judge_pause([NicState("a")]).found
    small = NicState("a", ring={"rx": "64", "rx-max": "4096"})
    assert state_and(capture.judge_ring([small]), "a rx 64 of 4096", "ethtool -G a rx 4096") == "warn"
    assert capture.judge_ring([NicState("a", ring={"rx": "128", "rx-max": "128"})]).state == "ok"
    assert capture.judge_ring([NicState("a")]).state == "ok"


def test_journal_of_a_killed_run() -> None:
    left = [Change("a", "offloads", "generic-receive-offload", "on", "off")]
    assert capture.judge_journal([], in_use=False).state == "ok"
    assert state_and(capture.judge_journal(left, in_use=True), "the run that has the bench") == "ok"
    finding = capture.judge_journal(left, in_use=False)
    assert state_and(finding, "(was on)", "the next run", "sudo ethtool -K a generic-receive-offload on") == "warn"


# --- Jetson -----------------------------------------------------------------------------------------------------------


def test_ssh_agent() -> None:
    listing = "256 SHA256:WmUg3b2oD7E0D1jYwJt0fLr4mK8vLq2c9uM1xZ0aBcd rig@lab (ED25519)\n"
    assert state_and(jetson.judge_agent(listing), "1 in the SSH agent") == "ok"
    assert state_and(jetson.judge_agent(""), "none in the SSH agent", "ssh-add") == "fail"
    assert state_and(jetson.judge_agent(None), "no SSH agent", "eval $(ssh-agent)") == "fail"


def test_engine() -> None:
    cpu = {"onnxruntime": "1.32.0", "providers": ["CPUExecutionProvider"], "python": "3.8.10"}
    gpu = {**cpu, "providers": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]}
    broken = {"onnxruntime": None, "onnxruntime_error": "No module named 'onnxruntime'", "python": "3.8.10"}
    assert jetson.judge_engine(gpu, hardware=True).state == "ok"
    assert jetson.judge_engine(cpu, hardware=False).state == "ok"
    assert state_and(jetson.judge_engine(cpu, hardware=True), "CPU only", "onnxruntime-gpu") == "warn"
    assert state_and(jetson.judge_engine(broken, hardware=True), "No module named", "jetson.python") == "fail"


def test_models_disk() -> None:
    assert state_and(jetson.judge_models("~/models", ["sensor-lm"]), "sensor-lm in ~/models") == "ok"
    assert state_and(jetson.judge_models("~/models", []), "no model") == "warn"
    assert jetson.judge_disk(1 << 30).state == "ok"
    assert state_and(jetson.judge_disk(10 << 20), "df -h") == "fail"


def test_jetson_clocks() -> None:
    calm = {"governor": "performance", "cooling": {"cooling_device0:pwm-fan": "3", "cooling_device1:cpu-hot": "0"}}
    assert state_and(jetson.judge_clocks(calm), "nothing throttles") == "ok"
    assert jetson.judge_clocks({"governor": None, "cooling": {}, "over_current": {}}).state == "ok"
    assert state_and(jetson.judge_clocks({**calm, "governor": "schedutil"}), "jetson_clocks") == "warn"
    hot = {**calm, "cooling": {"cooling_device1:cpu-hot": "2"}}
    assert state_and(jetson.judge_clocks(hot), "throttled now by cooling_device1:cpu-hot") == "warn"
    weak = {**calm, "over_current": {"/sys/class/hwmon/hwmon1/oc1_event_cnt": "4"}}
    assert state_and(jetson.judge_clocks(weak), "over-current", "power supply") == "warn"


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "route"),
    [
        (r"10.77.0.10 dev eth0 src 10.77.0.20 uid 0 \    cache ", routes.Route("eth0", "10.77.0.20")),
        (
            r"192.168.50.10 via 10.1.0.1 dev wlan0 src 10.1.0.9 \    cache ",
            routes.Route("wlan0", "10.1.0.9", "10.1.0.1"),
        ),
        (r"local 10.77.0.20 dev lo src 10.77.0.20 uid 0 \    cache <local> ", routes.Route("lo", "10.77.0.20")),
        ("", None),
        ("RTNETLINK answers: Network is unreachable", None),
    ],
)
def test_routes_are_read_from_plain_text(text: str, route: routes.Route | None) -> None:
    assert routes.parse_route(text) == route


DIRECT = routes.Route("eth1", "192.168.50.20")


def facts(**other: object) -> routes.RouteFacts:
    usual: dict[str, object] = {
        "board": "192.168.50.10",
        "bench_address": "192.168.50.20",
        "gateway": None,
        "to_board": DIRECT,
        "to_rig": routes.Route("eth0", "10.1.0.9"),
        "from_rig": routes.Route("eno1", "10.1.0.2"),
        "segment": frozenset({"enp3s0", "br0"}),
        "ssh_server": "10.1.0.9",
        "ssh_client": "10.1.0.2",
    }
    return routes.RouteFacts(**{**usual, **other})  # type: ignore[arg-type]


def test_requests_must_take_the_bench_segment() -> None:
    judge = routes.judge_bench_route
    assert state_and(judge(facts()), "192.168.50.20 → eth1 → 192.168.50.10") == "ok"
    assert state_and(judge(facts(to_board=None)), "no route", "ip addr add 192.168.50.20/24") == "fail"
    default = routes.Route("eth0", "10.1.0.9", "10.1.0.1")
    assert state_and(judge(facts(to_board=default)), "gateway 10.1.0.1 on eth0, not on the bench segment") == "fail"
    routed = routes.Route("eth1", "192.168.50.20", "192.168.50.1")
    assert state_and(judge(facts(to_board=routed, gateway="192.168.60.1")), "via 192.168.50.1") == "ok"
    wrong = routes.Route("eth1", "192.168.50.77")
    assert state_and(judge(facts(to_board=wrong)), "from 192.168.50.77 on eth1", "jetson.bench_address") == "fail"


def test_ssh_should_not_take_it() -> None:
    judge = routes.judge_management
    assert state_and(judge(facts()), "10.1.0.2 ↔ 10.1.0.9") == "ok"
    same = facts(ssh_server="192.168.50.20")
    assert state_and(judge(same), "SSH goes to the bench address", "jetson.host") == "warn"
    assert state_and(judge(facts(to_rig=DIRECT)), "through eth1") == "warn"
    back = facts(from_rig=routes.Route("br0", "192.168.50.2"))
    assert state_and(judge(back), "through br0", "route 10.1.0.9") == "warn"
    assert state_and(judge(facts(ssh_server="", ssh_client="")), "by hand") == "warn"


def test_the_bridge_belongs_to_the_segment() -> None:
    links = json.dumps(
        [{"ifname": "enp3s0", "address": "02:00:00:00:00:03", "master": "br0"}, {"ifname": "br0"}, {"ifname": "eno1"}]
    ).encode()
    assert routes.bridged(links, {"enp3s0"}) == {"enp3s0", "br0"}
    assert routes.bridged(links, {"02:00:00:00:00:03"}) == {"enp3s0", "br0"}
    assert routes.bridged(links, {"eno1"}) == {"eno1"}
    assert routes.bridged(b"", {"eno1"}) == frozenset()


BOARD_MAC, JETSON_MAC, NIC_MAC = "02:00:00:00:00:10", "02:00:00:00:00:20", "02:00:00:00:00:03"


def test_every_station_on_the_segment_has_a_mac_of_its_own() -> None:
    stations = [("the board", BOARD_MAC), ("eth0 of the Jetson", JETSON_MAC), ("enp3s0 of the rig", NIC_MAC)]
    assert state_and(routes.judge_macs(stations), f"the board {BOARD_MAC}") == "ok"
    cloned = [*stations, ("enp4s0 of the rig", BOARD_MAC.upper())]
    twins = routes.judge_macs(cloned)
    assert state_and(twins, f"the board and enp4s0 of the rig have {BOARD_MAC}", "board.identity.mac") == "fail"


def test_a_bridge_is_no_twin_of_its_port() -> None:
    links = json.dumps(
        [
            {"ifname": "enp3s0", "address": NIC_MAC, "master": "br0"},
            {"ifname": "enp4s0", "address": JETSON_MAC, "master": "br0"},
            {"ifname": "br0", "address": NIC_MAC},
            {"ifname": "eno1", "address": BOARD_MAC},
            {},
        ]
    ).encode()
    assert routes.port_macs(links, {"enp3s0"}) == [("enp3s0", NIC_MAC), ("enp4s0", JETSON_MAC)]
    assert routes.port_macs(links, {BOARD_MAC}) == [("eno1", BOARD_MAC)]
    assert routes.port_macs(b"", {"enp3s0"}) == []
