"""Real settings of real (virtual) NICs: switched off, put back, and put back after the controller was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rig.bench.host import LocalHost
from rig.bench.nic import NicState, read_nics, read_segment
from rig.bench.nic_settings import Change, NicSettings, put_back, segment_record
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError

ENTER = ["nsenter", "--preserve-credentials", "--user", "--net"]


class Namespace(LocalHost):
    """This machine's programs in a network namespace of the test's own, in which they may set everything."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
        return super().run([*ENTER, f"--target={self.pid}", "--", *argv], deadline)

    def features(self, name: str) -> str:
        return self.run(["ethtool", "-k", name], soon()).stdout.decode()


def soon() -> Deadline:
    return Deadline.after(20)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A veth pair `va`/`vb`; `va` is a port of `br0` together with `vc`. GRO is on at `va`."""
    script = (
        "ip -batch - <<'TXT' && ethtool -K va gro on && echo ready && exec cat\n"
        "link add br0 type bridge\nlink add va type veth peer name vb\nlink add vc type veth peer name vd\n"
        "link set va master br0\nlink set vc master br0\nTXT"
    )
    path = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    holder = subprocess.Popen(
        ["unshare", "--map-root-user", "--net", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=path,
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != "ready\n":
        pytest.skip(f"no network namespace of its own here: {holder.communicate()[1].strip()}")
    try:
        yield Namespace(holder.pid)
    finally:
        holder.communicate("")


@pytest.fixture
def settings(namespace: Namespace, tmp_path: Path) -> NicSettings:
    return NicSettings(namespace, tmp_path / "nic.json")


def segment(host: Namespace) -> list[NicState]:
    return read_segment(host, ["va"], soon())


def test_off_while_in_use_and_exactly_as_before_afterwards(namespace: Namespace, settings: NicSettings) -> None:
    namespace.run(["ethtool", "-K", "vc", "tx-tcp-mangleid-segmentation", "off"], soon())
    before = {name: namespace.features(name) for name in ("va", "vb", "vc")}
    changes = settings.apply(segment(namespace), ["offloads", "coalescing", "eee"], soon())
    assert {(change.interface, change.setting) for change in changes} >= {
        ("va", "generic-receive-offload"),
        ("va", "generic-segmentation-offload"),
        ("vc", "tx-tcp-segmentation"),
    }
    for name in ("va", "vc"):
        values = read_nics(namespace, [name], soon())[0].offloads
        assert {value.split()[0] for value in values.values()} == {"off"}
    assert namespace.features("vb") == before["vb"]
    assert settings.left_behind() == changes
    assert settings.restore(soon()) == changes
    assert {name: namespace.features(name) for name in before} == before
    assert settings.left_behind() == []


def test_nothing_to_change_needs_no_journal(namespace: Namespace, settings: NicSettings, tmp_path: Path) -> None:
    settings.apply(segment(namespace), ["offloads"], soon())
    settings.restore(soon())
    assert settings.apply(segment(namespace), [], soon()) == []
    assert settings.apply(segment(namespace), ["coalescing", "eee"], soon()) == []
    assert list(tmp_path.iterdir()) == []
    assert settings.restore(soon()) == []


KILLED = """\
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[3]]
from test_bench_nic_settings import Namespace, segment, soon
from rig.bench.nic_settings import NicSettings
host = Namespace(int(sys.argv[1]))
NicSettings(host, Path(sys.argv[2])).apply(segment(host), ["offloads"], soon())
print("applied", flush=True)
sys.stdin.read()
"""


def test_settings_of_a_killed_controller_are_put_back_at_the_next_start(
    namespace: Namespace, settings: NicSettings, tmp_path: Path
) -> None:
    before = namespace.features("va")
    words = [sys.executable, "-c", KILLED, str(namespace.pid), str(tmp_path / "nic.json"), str(Path(__file__).parent)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "applied\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert namespace.features("va") != before
    assert {change.interface for change in settings.restore(soon())} == {"va", "vc"}
    assert namespace.features("va") == before
    assert settings.restore(soon()) == []


def test_killed_before_the_change_was_made_leaves_nothing_to_restore(
    namespace: Namespace, settings: NicSettings
) -> None:
    before = namespace.features("va")
    settings._write_journal([Change("va", "offloads", "generic-receive-offload", "off", "on")], soon())
    namespace.run(["ethtool", "-K", "va", "gro", "off"], soon())
    assert settings.restore(soon()) == []
    assert namespace.features("va") == before.replace("generic-receive-offload: on", "generic-receive-offload: off")


def test_what_somebody_set_meanwhile_stays(namespace: Namespace, settings: NicSettings) -> None:
    changes = settings.apply(segment(namespace), ["offloads"], soon())
    namespace.run(["ethtool", "-K", "va", "gro", "on"], soon())
    back = settings.restore(soon())
    assert set(changes) - set(back) == {Change("va", "offloads", "generic-receive-offload", "on", "off")}


@pytest.mark.parametrize("field", ["boot_id", "netns", "init"])
def test_a_journal_of_another_boot_or_namespace_is_dropped(
    namespace: Namespace, settings: NicSettings, tmp_path: Path, field: str
) -> None:
    settings.apply(segment(namespace), ["offloads"], soon())
    journal = tmp_path / "nic.json"
    content = json.loads(journal.read_text())
    content["place"][field] = "another"
    journal.write_text(json.dumps(content))
    assert settings.restore(soon()) == []
    assert not journal.exists()
    assert "generic-receive-offload: off" in namespace.features("va")


def test_an_interface_that_went_away_does_not_keep_the_others_from_coming_back(
    namespace: Namespace, settings: NicSettings
) -> None:
    settings.apply(segment(namespace), ["offloads"], soon())
    namespace.run(["ip", "link", "del", "va"], soon())
    assert {change.interface for change in settings.restore(soon())} == {"vc"}


def test_a_damaged_journal_is_told_and_stops_nobody(
    namespace: Namespace, settings: NicSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nic.json").write_text('{"place": ')
    assert settings.restore(soon()) == []
    assert "cannot be read" in caplog.text


def test_two_changes_in_one_session_all_come_back(namespace: Namespace, settings: NicSettings) -> None:
    before = namespace.features("va")
    settings.apply(segment(namespace), ["offloads"], soon())
    namespace.run(["ethtool", "-K", "va", "gro", "on"], soon())
    assert [change.setting for change in settings.apply(segment(namespace), ["offloads"], soon())] == [
        "generic-receive-offload"
    ]
    settings.restore(soon())
    assert namespace.features("va") == before


def test_without_the_right_to_change_the_command_for_it_is_named(tmp_path: Path, namespace: Namespace) -> None:
    class Powerless(Namespace):
        def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
            drop = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--"] if "-K" in argv else []
            return super().run([*drop, *argv], deadline)

    host = Powerless(namespace.pid)
    settings = NicSettings(host, tmp_path / "nic.json")
    with pytest.raises(BenchError) as caught:
        settings.apply(segment(host), ["offloads"], soon())
    assert "may not change the settings of va" in caught.value.what
    assert "sudo ethtool -K va" in (caught.value.hint or "")
    assert settings.restore(soon()) == []


def test_a_fixed_offload_that_is_on_is_refused_before_anything_changes(
    settings: NicSettings, namespace: Namespace
) -> None:
    state = NicState("va", "vmxnet3", {"large-receive-offload": "on [fixed]", "generic-receive-offload": "on"})
    before = namespace.features("va")
    with pytest.raises(BenchError, match="cannot switch off large-receive-offload: fixed by its driver vmxnet3"):
        settings.apply([state], ["offloads"], soon())
    assert namespace.features("va") == before
    assert settings.left_behind() == []


def test_a_driver_that_ignores_the_request_is_noticed(tmp_path: Path, namespace: Namespace) -> None:
    class Deaf(Namespace):
        def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
            return super().run(["true"] if "-K" in argv else argv, deadline)

    host = Deaf(namespace.pid)
    with pytest.raises(BenchError, match=r"va keeps .* although ethtool reported no error"):
        NicSettings(host, tmp_path / "nic.json").apply(segment(host), ["offloads"], soon())


def test_what_cannot_be_put_back_is_warned_of_and_stays_noted(
    namespace: Namespace, settings: NicSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = settings.apply(segment(namespace), ["offloads"], soon())

    def no_host() -> Namespace:
        raise InternalError("the host is gone")

    put_back(no_host, tmp_path / "nic.json", soon())
    assert "the host is gone" in caplog.text
    assert settings.left_behind() == changes
    put_back(lambda: namespace, tmp_path / "nic.json", soon())
    assert settings.left_behind() == []


def test_the_record_shows_the_state_in_force_and_what_was_changed(namespace: Namespace, settings: NicSettings) -> None:
    record = segment_record(settings, ["va"], ["offloads"], soon())
    assert list(record["interfaces"]) == ["va", "vc"]
    assert record["interfaces"]["va"]["offloads"]["generic-receive-offload"] == "off"
    assert {"interface": "va", "group": "offloads", "setting": "generic-receive-offload"}.items() <= {
        key: value
        for change in record["changes"]
        if change["interface"] == "va" and change["setting"] == "generic-receive-offload"
        for key, value in change.items()
    }.items()
    assert record["disabled"] == ["offloads"]
    settings.restore(soon())
    assert segment_record(settings, ["va"], [], soon())["changes"] == []


def test_without_ethtool_the_state_is_unknown_unless_it_must_be_set(namespace: Namespace, tmp_path: Path) -> None:
    class NoEthtool(Namespace):
        def run(self, argv: Sequence[str], deadline: Deadline) -> subprocess.CompletedProcess[bytes]:
            return super().run(
                ["env", "PATH=/nonexistent", "/bin/sh", *argv[1:]] if argv[0] == "sh" else argv, deadline
            )

    settings = NicSettings(NoEthtool(namespace.pid), tmp_path / "nic.json")
    assert "ethtool" in segment_record(settings, ["va"], [], soon())["unknown"]
    with pytest.raises(InternalError, match="ethtool"):
        segment_record(settings, ["va"], ["offloads"], soon())
