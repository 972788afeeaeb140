"""The whole emulated bench: what is in it, and what its lines, its link and its relay do."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest
import serial
from emulated_files import bench_file, on_jetson

from rig.bench.model import Board, Emulation, Identity, Serial
from rig.deadline import Deadline
from rig.emulation.bench import EmulatedBench, open_bench
from rig.errors import BenchError, InternalError
from rig.plan.model import Impairment

pytestmark = pytest.mark.bench

ACK, SYNC = b"\x79", b"\x7f"


def rig_output(bench: EmulatedBench, *argv: str) -> str:
    done = bench.host.run(argv, Deadline.after(10))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def announce(bench: EmulatedBench, count: int) -> None:
    """Send datagrams to an address that nobody has: each makes one ARP broadcast at least, which crosses the relay."""
    script = (
        "import socket\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('rig0', 0))\n"
        f"[s.send(bytes([255]) * 6 + bytes([2, 0, 0, 0, 0, 1]) + b'\\x88\\xb5' + bytes(46)) for _ in range({count})]"
    )
    rig_output(bench, "/usr/bin/python3", "-I", "-S", "-c", script)


def boot_rom_answers(bench: EmulatedBench, port: serial.Serial) -> bool:
    port.reset_input_buffer()
    port.write(SYNC)
    return port.read(1) == ACK


def start_boot_rom(bench: EmulatedBench) -> None:
    bench.lines.set_boot(True)
    bench.lines.set_reset(True)
    bench.lines.set_reset(False)


def test_bench_model_has_nothing_left_open(bench: EmulatedBench) -> None:
    model = bench.bench
    assert Path(model.board.serial.port).is_char_device()
    assert (model.board.reset.driver, model.board.boot.driver) == ("emulated", "emulated")
    assert (model.board.flash.baud, model.board.flash.parity) == (921_600, "none")
    assert model.capture.interface == "board-port"
    assert model.jetson.host_key.startswith("ssh-ed25519 AAAA")
    assert stat.S_IMODE(Path(model.jetson.key or "").stat().st_mode) == 0o600


def test_rig_side_has_its_addresses_and_no_way_out(bench: EmulatedBench) -> None:
    links = {link["ifname"]: link for link in json.loads(rig_output(bench, "ip", "-j", "addr"))}
    addresses = {name: [entry["local"] for entry in link["addr_info"]] for name, link in links.items()}
    assert addresses["rig0"] == ["10.77.0.2"]
    assert addresses["mgmt"] == ["10.78.0.1"]
    assert {"br0", "board-port", "mirror0", "tap-a", "tap-b"} <= links.keys()
    assert not any(":" in address for of_link in addresses.values() for address in of_link)
    assert rig_output(bench, "ip", "route", "show", "default") == ""


def test_offloads_of_all_senders_are_off(bench: EmulatedBench) -> None:
    for name in ("rig0", "board-port"):
        features = rig_output(bench, "ethtool", "-k", name)
        for feature in ("tx-checksumming", "generic-segmentation-offload", "tx-tcp-segmentation"):
            assert f"{feature}: off" in features, name


def test_jetson_is_reached_by_its_pinned_key_only_on_its_own_links(bench: EmulatedBench, tmp_path: Path) -> None:
    done = on_jetson(bench, "id -un; pwd; ip -j addr; ip route show default", tmp_path / "known")
    assert done.returncode == 0, done.stderr
    user, home, links = done.stdout.decode().splitlines()
    assert (user, home) == ("jetson", "/run/jetson")
    addresses = {link["ifname"]: [entry["local"] for entry in link["addr_info"]] for link in json.loads(links)}
    assert addresses == {"lo": ["127.0.0.1"], "eth0": ["10.77.0.20"], "mgmt0": ["10.78.0.20"]}


def test_sockets_are_opened_on_the_rigs_side(bench: EmulatedBench) -> None:
    with bench.host.connect(("10.78.0.20", 2222), Deadline.after(5)) as sock:
        assert sock.recv(8).startswith(b"SSH-2.0")
        assert sock.getsockname()[0] == "10.78.0.1"
    with pytest.raises(ConnectionRefusedError):
        bench.host.connect(("10.78.0.20", 1), Deadline.after(5))
    with pytest.raises(TimeoutError):
        bench.host.connect(("10.77.0.99", 22), Deadline.after(0.2))
    # and requests after a late one still get their own answers
    assert rig_output(bench, "echo", "in order") == "in order\n"


def test_processes_of_the_bench_report_their_end(bench: EmulatedBench, tmp_path: Path) -> None:
    child = bench.host.spawn(["sh", "-c", "echo here; exit 7"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    assert child.wait(Deadline.after(10)) == 7
    assert (tmp_path / "out").read_text() == "here\n"
    sleeper = bench.host.spawn(["sleep", "1000"], stdout=tmp_path / "out", stderr=tmp_path / "err")
    assert sleeper.poll() is None
    sleeper.send_signal(15)
    assert sleeper.wait(Deadline.after(10)) == -15
    sleeper.send_signal(15)


def test_missing_and_late_programs_are_named(bench: EmulatedBench) -> None:
    with pytest.raises(InternalError, match="no-such-program"):
        bench.host.run(["no-such-program"], Deadline.after(5))
    with pytest.raises(InternalError, match=r"did not end within 0\.1 s"):
        bench.host.run(["sleep", "1000"], Deadline.after(0.1))


def test_boot_and_reset_lines_select_the_boot_rom(bench: EmulatedBench) -> None:
    with serial.Serial(bench.bench.board.serial.port, 921_600, timeout=5) as port:
        start_boot_rom(bench)
        assert boot_rom_answers(bench, port)
        bench.lines.set_reset(True)
        port.timeout = 0.2
        port.write(3 * SYNC)
        assert port.read(1) == b""
        bench.lines.set_reset(False)
        assert port.read(1) == b"", "bytes sent while the board was in reset must not reach it"
        port.timeout = 5
        assert boot_rom_answers(bench, port)
    bench.lines.set_boot(False)


def test_board_powered_while_in_reset_starts_at_its_release(bench: EmulatedBench) -> None:
    with serial.Serial(bench.bench.board.serial.port, 921_600, timeout=0.2) as port:
        bench.lines.set_boot(True)
        bench.lines.set_reset(True)
        bench.lines.power(False)
        bench.lines.power(True)
        assert not boot_rom_answers(bench, port)
        bench.lines.set_reset(False)
        port.timeout = 5
        assert boot_rom_answers(bench, port)
    bench.lines.set_boot(False)


def test_power_cycle_keeps_the_flash(bench: EmulatedBench) -> None:
    with serial.Serial(bench.bench.board.serial.port, 921_600, timeout=5) as port:

        def exchange(*parts: bytes) -> None:
            for part in parts:
                port.write(part)
                assert port.read(1) == ACK

        address = bytes.fromhex("08040000") + b"\x0c"  # in the weights region; XOR of its bytes
        start_boot_rom(bench)
        assert boot_rom_answers(bench, port)
        exchange(b"\x44\xbb", b"\x00\x00\x00\x05\x05")  # AN3155 extended erase of sector 5
        exchange(b"\x31\xce", address, b"\x03rig!" + bytes([3 ^ ord("r") ^ ord("i") ^ ord("g") ^ ord("!")]))
        bench.lines.power(False)
        assert not bench.status()["power"]
        bench.lines.power(True)
        assert boot_rom_answers(bench, port)
        exchange(b"\x11\xee", address, b"\x03\xfc")
        assert port.read(4) == b"rig!"
    bench.lines.set_boot(False)


def test_relay_loses_what_it_is_told_to_and_counts_it(bench: EmulatedBench) -> None:
    rule = Impairment.model_validate(
        {"direction": "to-board", "loss": "100 %", "select": {"ethertype": 0x88B5, "every": 4}}
    )
    bench.set_impairment([rule])
    try:
        before = bench.relay_counters()["to-board"]
        announce(bench, 20)
        after = bench.relay_counters()["to-board"]
        assert after["received"] - before["received"] >= 20
        assert after["dropped_loss"] - before["dropped_loss"] == 5
    finally:
        bench.set_impairment([])
    announce(bench, 20)
    assert bench.relay_counters()["to-board"]["dropped_loss"] == after["dropped_loss"]


def test_unplugged_cable_takes_the_carrier_away(bench: EmulatedBench) -> None:
    carrier = Path("/sys/class/net/board-port/carrier")
    assert rig_output(bench, "cat", str(carrier)) == "1\n"
    bench.set_link(False)
    assert rig_output(bench, "cat", str(carrier)) == "0\n"
    before = bench.relay_counters()["to-board"]["received"]
    announce(bench, 5)
    assert bench.relay_counters()["to-board"]["received"] == before
    bench.set_link(True)
    assert rig_output(bench, "cat", str(carrier)) == "1\n"


def test_board_without_power_has_no_link(bench: EmulatedBench) -> None:
    bench.lines.power(False)
    assert rig_output(bench, "cat", "/sys/class/net/board-port/carrier") == "0\n"
    bench.lines.power(True)
    assert rig_output(bench, "cat", "/sys/class/net/board-port/carrier") == "1\n"


def test_mirror_is_a_matter_of_the_bench_file(own_state: Path) -> None:
    with open_bench(bench_file(emulation=Emulation(capture="mirror"))) as bench:
        assert (bench.bench.capture.point, bench.bench.capture.interface) == ("mirror", "mirror0")


def test_impairments_of_the_bench_file_hold_from_the_start(own_state: Path) -> None:
    rule = Impairment.model_validate({"direction": "to-board", "loss": "100 %"})
    with open_bench(bench_file(emulation=Emulation(impairment=[rule]))) as bench:
        announce(bench, 3)
        counters = bench.relay_counters()["to-board"]
        assert counters["released"] == 0
        assert counters["dropped_loss"] == counters["received"] >= 3


def test_hardware_bench_is_refused(own_state: Path) -> None:
    file = bench_file().model_copy(update={"emulation": None})
    with pytest.raises(BenchError, match="not an emulated one"):
        open_bench(file)


def test_bench_file_must_not_describe_what_the_emulation_makes(own_state: Path) -> None:
    board = Board(
        serial=Serial(port="/dev/ttyS0"), identity=Identity(name="x", mac="02:00:00:00:00:01", address="1.2.3.4")
    )
    with pytest.raises(BenchError, match="must not describe its own board"):
        open_bench(bench_file().model_copy(update={"board": board}))


def test_controllers_own_network_is_untouched(bench: EmulatedBench) -> None:
    assert not {name for _, name in socket.if_nameindex()} & {"rig0", "br0", "board-port", "mirror0", "mgmt"}
