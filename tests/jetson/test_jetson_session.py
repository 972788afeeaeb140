"""SSH as it goes wrong: keys, ports, frozen and killed servers, full and forbidden folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jetson_far_side import LocalHost, Sshd, descendants, generate_key, jetson_at, start_sshd, stop_sshd

from rig.bench.model import Jetson
from rig.deadline import Deadline
from rig.errors import BenchError, JetsonError
from rig.jetson.session import JetsonSession


@pytest.fixture
def session(jetson: Jetson, host: LocalHost) -> Iterator[JetsonSession]:
    with JetsonSession(jetson, host, Deadline.after(20)) as opened:
        yield opened


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def connect(jetson: Jetson, seconds: float = 20) -> None:
    with JetsonSession(jetson, LocalHost(), Deadline.after(seconds)):
        pass


def test_changed_host_key_says_what_was_shown_and_how_to_pin_it(sshd: Sshd, tmp_path: Path) -> None:
    other = generate_key(tmp_path / "other").with_suffix(".pub").read_text()
    with pytest.raises(JetsonError, match="not the pinned one") as caught:
        connect(jetson_at(sshd, tmp_path, host_key=other))
    assert f"host_key: {sshd.host_key}" in str(caught.value)
    assert "SHA256:" in str(caught.value.seen)


def test_pinned_type_that_the_server_lacks_is_named(sshd: Sshd, tmp_path: Path) -> None:
    other = generate_key(tmp_path / "other", "ecdsa").with_suffix(".pub").read_text()
    with pytest.raises(JetsonError, match="no host key of the pinned type ecdsa-sha2-nistp256"):
        connect(jetson_at(sshd, tmp_path, host_key=other))


def test_rsa_host_key_is_verified_with_sha2(tmp_path: Path, host: LocalHost) -> None:
    server = start_sshd(tmp_path, host_key_type="rsa")
    try:
        with JetsonSession(jetson_at(server, tmp_path), host, Deadline.after(20)) as session:
            assert session._transport is not None
            assert session._transport.host_key_type in ("rsa-sha2-256", "rsa-sha2-512")
    finally:
        stop_sshd(server)


def test_no_algorithm_on_offer_rests_on_sha1_or_md5(session: JetsonSession) -> None:
    assert session._transport is not None
    options = session._transport.get_security_options()
    offered = [*options.kex, *options.digests, *options.key_types, *session._transport.preferred_pubkeys]
    assert offered
    assert not [name for name in offered if "sha1" in name or "md5" in name or name in ("ssh-rsa", "ssh-dss")]


def test_key_that_may_not_log_in_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    stranger = generate_key(tmp_path / "stranger")
    with pytest.raises(JetsonError, match="refuses the login") as caught:
        connect(jetson_at(sshd, tmp_path, key=str(stranger)))
    assert "SHA256:" in str(caught.value.seen)
    assert "authorized_keys" in str(caught.value.hint)


def test_without_key_and_agent_the_way_out_is_shown(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(BenchError, match="agent has none"):
        connect(jetson_at(sshd, tmp_path, key=None))


def test_nobody_listening_is_unreachable(sshd: Sshd, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(JetsonError, match="Connection refused"):
            connect(jetson_at(sshd, tmp_path, port=unused.getsockname()[1]))


def test_server_that_never_speaks_ends_with_the_deadline(sshd: Sshd, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with pytest.raises(JetsonError, match=r"did not answer within 2 s|handshake"):
            connect(jetson_at(sshd, tmp_path, port=mute.getsockname()[1]), 2)


def test_server_that_is_no_ssh_is_an_error(sshd: Sshd, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            connection, _ = web.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 200)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(JetsonError, match="handshake"):
            connect(jetson_at(sshd, tmp_path, port=web.getsockname()[1]))
        thread.join()


def test_frozen_server_ends_each_call_with_its_deadline(own_sshd: Sshd, tmp_path: Path, host: LocalHost) -> None:
    jetson = jetson_at(own_sshd, tmp_path)
    with JetsonSession(jetson, host, Deadline.after(20)) as session:
        for pid in descendants(own_sshd.process.pid):
            with contextlib.suppress(ProcessLookupError):  # a helper of the log-in may end just now
                os.kill(pid, signal.SIGSTOP)
        with pytest.raises(JetsonError, match=r"did not answer within 0\.4 s while starting true"):
            session.run(["true"], Deadline.after(0.4))
        with pytest.raises(JetsonError, match="no connection"):
            session.run(["true"], Deadline.after(5))


def test_killed_server_is_a_lost_connection(own_sshd: Sshd, tmp_path: Path, host: LocalHost) -> None:
    with JetsonSession(jetson_at(own_sshd, tmp_path), host, Deadline.after(20)) as session:
        process = session.start(["sleep", "600"], Deadline.after(20))
        stop_sshd(own_sshd)
        assert process.wait(Deadline.after(20)) == -1
        with pytest.raises(JetsonError, match=r"lost|failed|no connection"):
            session.run(["true"], Deadline.after(20))


def test_late_command_is_an_error_and_ends(session: JetsonSession, monkeypatch: pytest.MonkeyPatch) -> None:
    start = session._start  # takes what it needs: only the command itself is to be late
    monkeypatch.setattr(session, "_start", lambda argv, deadline, name: start(argv, Deadline.after(20), name))
    with pytest.raises(JetsonError, match=r"`sleep 654321` on .* did not end within 0\.3 s"):
        session.run(["sleep", "654321"], Deadline.after(0.3))
    until = time.monotonic() + 30
    while b"sleep\x00654321\x00" in command_lines():
        assert time.monotonic() < until, "it still runs on the Jetson"
        time.sleep(0.02)


def test_status_and_both_outputs_come_back(session: JetsonSession) -> None:
    result = session.run(["sh", "-c", "echo out; echo err >&2; exit 7"], Deadline.after(20))
    assert (result.status, result.stdout, result.stderr) == (7, b"out", b"err")


def test_much_output_on_both_streams_blocks_nothing(session: JetsonSession) -> None:
    script = "yes error | head -c 2400000 >&2; yes 1234567 | head -c 2400000; echo end; echo end >&2"
    result = session.run(["sh", "-c", script], Deadline.after(30))
    assert len(result.stdout) == 2_400_000 + len("end")
    assert result.stdout.endswith(b"\nend")
    assert result.stderr.endswith(b"\nend")


def test_files_travel_both_ways_and_are_compared(session: JetsonSession, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    remote = session.path("deep", "er", "file")
    session.put(data, remote, Deadline.after(20))
    assert session.has(remote, len(data), Deadline.after(20))
    assert not session.has(remote, len(data) + 1, Deadline.after(20))
    assert [path.name for path in Path(remote).parent.iterdir()] == ["file"]
    digest = hashlib.sha256(data).hexdigest()
    session.get(remote, tmp_path / "back", Deadline.after(20), size=len(data), sha256=digest)
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(JetsonError, match="arrived with 300000 bytes"):
        session.get(remote, tmp_path / "back", Deadline.after(20), size=len(data), sha256="0" * 64)
    with pytest.raises(JetsonError, match="arrived with 300000 bytes"):
        session.get(remote, tmp_path / "back", Deadline.after(20), size=len(data) - 1, sha256=digest)


def test_place_that_cannot_hold_files_is_named(session: JetsonSession, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file where a folder should be")
    with pytest.raises(JetsonError, match=r"uploading .*plain/runner\.py"):
        session.put(b"x", str(tmp_path / "plain" / "runner.py"), Deadline.after(20))


def test_full_disk_is_suspected(session: JetsonSession) -> None:
    with pytest.raises(JetsonError, match=r"uploading /dev/full") as caught:
        session.put(b"x" * 100_000, "/dev/full/x", Deadline.after(20))
    assert caught.value.what
