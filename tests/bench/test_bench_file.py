"""Bench files: sound ones become a model, broken ones give one clear message each. `§` marks the fault's place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rig.bench.load import hardware_bench, load_bench
from rig.errors import BenchError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OTHER_KIND = KEY.replace("ssh-ed25519", "ssh-rsa")

HARDWARE = f"""\
bench: lab-3
capabilities: [inline, climate-chamber]
uncertainty: {{declared: 20 us}}
board:
  serial: {{port: /dev/serial/by-id/usb-ST-if02}}
  reset: {{driver: rts}}
  boot: {{driver: dtr, inverted: true}}
  flash: {{driver: an3155}}
  identity: {{name: lab-3, mac: '02:00:00:00:00:03', address: 10.0.0.10}}
jetson:
  host: orin-3.lab
  user: rig
  host_key: {KEY}
  bench_address: 10.0.0.20
capture: {{point: inline, interface: enp3s0}}
"""
EMULATED = "bench: emulated\nprofile: emulated\nuncertainty: {declared: 200 us}\nemulation: {}\n"

MIRRORED = EMULATED.replace("emulation: {}", "emulation: {capture: mirror}\ncapabilities: [mirror, §inline]")

EMULATED_BY_SECTION = "bench: x\nuncertainty: {declared: 200 us}\n§emulation: {}\n"
EMULATED_BY_PROFILE = "bench: x\nprofile: §emulated\nuncertainty: {declared: 200 us}\n"

RESET = "  reset: {driver: rts}"
FLASH = "  flash: {driver: an3155}"

CASES: list[tuple[str, str | None, str, str, str]] = [
    # --- which bench it is ----------------------------------------------------------------------------------------
    ("empty", None, "§", "is empty", ""),
    ("no board", None, "§bench: x\nuncertainty: {declared: 1 us}\n", "needs the section `board`", "emulation: {}"),
    ("no capture", "capture: {point: inline, interface: enp3s0}\n", "", "needs the section `capture`", ""),
    (
        "emulated with a board",
        None,
        f"{EMULATED}§board:{HARDWARE.split('board:')[1]}",
        "brings its own `board`",
        "remove",
    ),
    ("emulation by half", None, EMULATED_BY_SECTION, "its profile is `hardware`", "profile: emulated"),
    ("profile by half", None, EMULATED_BY_PROFILE, "needs the section `emulation`", ""),
    ("misspelt section", "capture:", "§captur:", "unknown key `captur`", "`capture`"),
    ("misspelt key", "user: rig", "§usr: rig", "unknown key `usr`", "`user`"),
    ("no uncertainty", "uncertainty: {declared: 20 us}\n", "", "key `uncertainty` is missing", ""),
    ("perfect clock", "declared: 20 us", "declared: §0 ns", "no measurement is free of error", ""),
    ("bare uncertainty", "declared: 20 us", "declared: §20", "bare number 20", ""),
    ("misspelt capability", "[inline,", "[§inlien,", "unknown capability", "`inline`"),
    ("relay on hardware", "[inline,", "[inline, §link-relay,", "only an emulated bench has `link-relay`", ""),
    ("cable switch on hardware", "[inline,", "[inline, §link-switch,", "only an emulated bench has `link-switch`", ""),
    ("no power", "[inline,", "[§power-switch,", "`power-switch` needs the section `power` of the board", ""),
    ("other point", "[inline,", "[inline, §tap,", "this bench captures at `inline`, not at `tap`", ""),
    ("other point of an emulated bench", None, MIRRORED, "this bench captures at `mirror`, not at `inline`", ""),
    ("octal port", "  user: rig", "  port: §022\n  user: rig", "octal", "leading zero"),
    ("inverted yes", "inverted: true", "inverted: §yes", "means a boolean to some", "`true`"),
    # --- serial, lines, flash -------------------------------------------------------------------------------------
    ("windows port", "/dev/serial/by-id/usb-ST-if02", "§COM3", "`COM3` is not a serial port", "rfc2217"),
    ("unknown scheme", "/dev/serial/by-id/usb-ST-if02", "§rfc2271://ser:4000", "unknown scheme `rfc2271`", "`rfc2217`"),
    ("url without port", "/dev/serial/by-id/usb-ST-if02", "§socket://ser", "not of the form `socket://host:port`", ""),
    ("baud as text", "usb-ST-if02}", "usb-ST-if02, baud: §fast}", "whole number", ""),
    ("unknown driver", RESET, "  reset: {driver: §cts}", "is not one of `dtr`, `rts`", ""),
    ("command without off", RESET, "  reset: {driver: §command, on: {command: [a]}}", "driver needs `off`", ""),
    (
        "on without command",
        RESET,
        "  reset: {driver: rts, §on: {command: [a]}}",
        "`on` has no meaning",
        "driver: command",
    ),
    ("emulated line", RESET, "  reset: {driver: §emulated}", "only an emulated bench", ""),
    ("emulated power", RESET, "  power: {driver: §emulated}", "only an emulated bench", "command, none"),
    ("power by dtr", RESET, "  power: {driver: §dtr}", "is not one of `command`, `emulated`", ""),
    ("power without off", RESET, "  power: {driver: §command, on: {command: [a]}}", "driver needs `off`", ""),
    (
        "image for power",
        RESET,
        "  power: {driver: command, on: {command: [a, §'{image}']}, off: {command: [b]}}",
        "unknown placeholder `{image}`",
        "port",
    ),
    ("off for nothing", RESET, "  power: {driver: none, off_for: §3}", "bare number 3", ""),
    ("read by an3155", FLASH, "  flash: {driver: an3155, §read: {command: [a]}}", "`read` has no meaning", ""),
    (
        "read without size",
        FLASH,
        "  flash: {driver: command, command: {command: [w, '{image}']}, read: {§command: [r, '{image}', '{address}']}}",
        "a programmer needs `{size}`",
        "",
    ),
    (
        "misspelt placeholder of read",
        FLASH,
        "  flash: {driver: command, command: {command: [w, '{image}']}, "
        "read: {command: [r, '{image}', '{address}', '{size}', §'{prot}']}}",
        "unknown placeholder `{prot}`",
        "`port`",
    ),
    ("foreign identity", FLASH, f"{FLASH}\n  §banner: MyOS", "may keep something of its own", "identity_address: null"),
    ("inverted command", RESET, "  reset: {driver: none, §inverted: true}", "`inverted` has no meaning", ""),
    ("command as text", RESET, "  reset: {driver: command, on: §uhubctl, off: {command: [a]}}", "a mapping", "command"),
    ("shell text", RESET, "  reset: {driver: command, on: {command: §a -b}, off: {command: [a]}}", "a list", ""),
    (
        "empty command",
        RESET,
        "  reset: {driver: command, on: {command: §[]}, off: {command: [a]}}",
        "an empty list",
        "",
    ),
    ("flash without command", FLASH, "  flash: {driver: §command}", "the `command` driver needs `command`", ""),
    ("command unasked", FLASH, "  flash: {§command: {command: [p, '{image}']}}", "no meaning for the driver", ""),
    ("no image", FLASH, "  flash: {driver: command, command: {§command: [st-flash]}}", "needs `{image}`", ""),
    (
        "placeholder",
        FLASH,
        "  flash: {driver: command, command: {command: [p, '{image}', §'{adress}']}}",
        "`{adress}`",
        "`address`",
    ),
    ("same address", FLASH, "  flash: {identity_address: §0x08000000}", "is `image_address` already", ""),
    ("address too large", FLASH, "  flash: {image_address: §0x108000000}", "above the largest allowed value", ""),
    ("bad banner", RESET, f"{RESET}\n  banner: §'fw (v'", "not a regular expression", ""),
    # --- addresses ------------------------------------------------------------------------------------------------
    ("upper-case MAC", "'02:00:00:00:00:03'", "§'02:00:00:00:00:0A'", "lower-case hex digits", ""),
    ("group MAC", "'02:00:00:00:00:03'", "§'01:00:5e:00:00:01'", "is a group address", ""),
    ("unquoted digits", "'02:00:00:00:00:03'", "§12:34:56:10:20:30", "base 60", "quote it"),
    ("bad address", "address: 10.0.0.10", "address: §10.0.0.256", "is not an IPv4 address", ""),
    ("bad netmask", "address: 10.0.0.10", "address: 10.0.0.10, netmask: §255.0.255.0", "is not a netmask", ""),
    ("network address", "address: 10.0.0.10", "address: §10.0.0.0", "the whole of 10.0.0.0/24", ""),
    (
        "gateway outside",
        "address: 10.0.0.10",
        "address: 10.0.0.10, gateway: §10.1.0.1",
        "not in the board's network",
        "",
    ),
    ("Jetson outside", "bench_address: 10.0.0.20", "bench_address: §10.9.0.20", "and the board has no gateway", ""),
    ("same as the board", "bench_address: 10.0.0.20", "bench_address: §10.0.0.10", "the board's own address", ""),
    ("long name", "name: lab-3", "name: §a-name-that-is-too-long", "does not fit the pattern", ""),
    # --- Jetson and capture ---------------------------------------------------------------------------------------
    ("user in host", "host: orin-3.lab", "host: §rig@orin-3.lab", "is not a host name", "user and port go apart"),
    ("no host key", KEY, "§AAAAC3Nz", "is not a public host key", "ssh-keyscan"),
    ("key with host", KEY, f"§orin-3 {KEY}", "begins with the host `orin-3`", ""),
    ("unknown key type", KEY, f"§{KEY.replace('ssh-ed25519', 'ssh-dss')}", "key type `ssh-dss` is unknown", ""),
    ("damaged key", KEY, f"§{KEY.replace('AAAAC3', 'AAA*C3')}", "not base64", ""),
    ("cut key", KEY, f"§{KEY[:-8]}", "is cut: an ed25519 key has 51 bytes", ""),
    ("other key", KEY, f"§{OTHER_KIND}", "does not say that it is ssh-rsa", ""),
    ("interface", "enp3s0", "§a-name-of-sixteen", "neither an interface name", ""),
    ("capture point", "point: inline", "point: §inlin", "is not one of `inline`, `mirror`", "`inline`"),
    ("impairment", None, EMULATED.replace("{}", "{impairment: [§{jitter: 0 ns}]}"), "imposes nothing", ""),
]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("old", "new", "message", "suggestion"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_broken_bench_is_explained(tmp_path: Path, old: str | None, new: str, message: str, suggestion: str) -> None:
    assert old is None or old in HARDWARE
    text = new if old is None else HARDWARE.replace(old, new, 1)
    head, mark, tail = text.partition("§")
    with pytest.raises(BenchError) as caught:
        load_bench(write(tmp_path, head + tail))
    faults = caught.value.faults
    fitting = [fault for fault in faults if message in fault.message and suggestion in (fault.suggestion or "")]
    assert fitting, [str(fault) for fault in faults]
    if mark:
        place = (head.count("\n") + 1, len(head) - head.rfind("\n"))
        assert place in [(fault.line, fault.column) for fault in fitting], [str(fault) for fault in faults]
    assert not any("Input should" in str(fault) for fault in faults)


def test_hardware_bench_is_usable_as_it_stands(tmp_path: Path) -> None:
    bench = hardware_bench(load_bench(write(tmp_path, HARDWARE)))
    assert bench.profile == "hardware"
    assert bench.uncertainty.declared == 20_000
    assert bench.board.flash.product_id == 0x449
    assert bench.board.identity.mac == "02:00:00:00:00:03"
    assert bench.jetson.host_key == KEY


def test_emulated_bench_has_to_be_brought_up(tmp_path: Path) -> None:
    file = load_bench(write(tmp_path, EMULATED))
    assert file.emulation is not None
    with pytest.raises(BenchError, match="has to be brought up"):
        hardware_bench(file)


@pytest.mark.parametrize(
    "port", ["/dev/ttyUSB0", "rfc2217://10.0.0.9:4000", "socket://lab:5000", "rfc2217://[::1]:4000?ign_set_control"]
)
def test_port_forms(tmp_path: Path, port: str) -> None:
    text = HARDWARE.replace("/dev/serial/by-id/usb-ST-if02", f"'{port}'")
    assert hardware_bench(load_bench(write(tmp_path, text))).board.serial.port == port


@pytest.mark.parametrize("netmask", ["255.255.255.254", "255.255.255.255"])
def test_point_to_point_networks_have_no_reserved_addresses(tmp_path: Path, netmask: str) -> None:
    text = HARDWARE.replace("address: 10.0.0.10}", f"address: 10.0.0.10, netmask: {netmask}, gateway: 10.0.0.10}}")
    assert hardware_bench(load_bench(write(tmp_path, text))).board.identity.netmask == netmask


def test_command_drivers(tmp_path: Path) -> None:
    text = HARDWARE.replace(
        RESET,
        "  reset:\n    driver: command\n"
        "    on: {command: [pdu, 'off', '3']}\n    off: {command: [pdu, 'on', '3'], deadline: 5 s}",
    )
    text = text.replace(
        FLASH,
        "  flash: {driver: command, product_id: null, command: {command: [st-flash, write, '{image}', '{address}']}}",
    )
    board = hardware_bench(load_bench(write(tmp_path, text))).board
    assert board.reset.off is not None
    assert board.reset.off.deadline == 5_000_000_000
    assert board.flash.product_id is None


def test_bench_dump_reads_back_the_same(tmp_path: Path) -> None:
    """null says something for `product_id`, so it must survive."""
    import yaml

    file = load_bench(
        write(tmp_path, HARDWARE.replace("{driver: an3155}", "{product_id: null, identity_address: null}"))
    )
    text = yaml.safe_dump(file.model_dump(mode="json", by_alias=True))
    assert load_bench(write(tmp_path, text)) == file


def test_missing_bench_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=re.escape(f"{tmp_path}/none.yaml: does not exist")):
        load_bench(tmp_path / "none.yaml")
