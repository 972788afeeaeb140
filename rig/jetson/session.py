"""One SSH session to the Jetson: connect with a pinned host key, run fixed argument lists, move files with checksums.

Every call that can block takes a Deadline. paramiko waits without limit in several places (exec requests, exit status,
SFTP replies), so a watchdog closes the transport when the deadline passes; whatever waited then returns at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import queue
import shlex
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rig.bench.host import Host
from rig.bench.model import Jetson
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError, JetsonError
from rig.jetson.keys import PinnedKey, load_private_key, parse_pin

if TYPE_CHECKING:
    import paramiko

DEAD_PEER_MS: Final = 10_000
"""Unacknowledged data older than this ends the connection (TCP_USER_TIMEOUT, RFC 5482)."""

_BLOCK = 32_768
_LATE_S = 1.0
_DISK_HINT = "is the Jetson's disk full (`df -h`), or jetson.work_dir write-protected (`mount`)?"


@dataclass(frozen=True)
class RemoteResult:
    """How a remote command ended. status is its exit status, -1 when a signal ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class RemoteProcess:
    """A command that runs on the Jetson. Both outputs are drained by threads, so neither can block the other."""

    STDERR_KEPT = 8192

    def __init__(self, session: JetsonSession, channel: paramiko.Channel, argv: Sequence[str]) -> None:
        self.argv = tuple(argv)
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        """Lines of stdout without their end; None once stdout has ended."""
        self._session = session
        self._channel = channel
        self._stderr = bytearray()
        self._threads = [
            threading.Thread(target=target, name=f"ssh-{target.__name__}", daemon=True)
            for target in (self._drain_stdout, self._drain_stderr)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stderr_tail(self) -> str:
        """The last lines of stderr, for messages."""
        return bytes(self._stderr).decode("utf-8", "replace").strip()

    def write(self, data: bytes, deadline: Deadline) -> None:
        """To the command's stdin; JetsonError when it or the connection is gone."""
        # Not with the channel's own time-out: it would end the reading threads too.
        with self._session.within(deadline, f"sending an order to {self.argv[0]}"):
            self._channel.sendall(data)

    def wait(self, deadline: Deadline) -> int | None:
        """The exit status (-1: ended by a signal or with the connection), None if the deadline came first."""
        if not self._channel.status_event.wait(deadline.left()):
            return None
        return self._channel.recv_exit_status()

    def close(self) -> None:
        """End of file on stdin and no more output; the runner takes that as its order to end."""
        self._channel.close()
        for thread in self._threads:
            thread.join(2.0)

    def _drain_stdout(self) -> None:
        rest = b""
        with contextlib.suppress(OSError, EOFError):
            while block := self._channel.recv(_BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self.lines.put(line)
        if rest:
            self.lines.put(rest)
        self.lines.put(None)

    def _drain_stderr(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while block := self._channel.recv_stderr(_BLOCK):
                self._stderr += block
                del self._stderr[: -self.STDERR_KEPT]


class JetsonSession:
    """A context manager: connected inside, closed outside.

    Raises BenchError for what the bench file has wrong (key file, pin), JetsonError for all that the far side does.
    """

    def __init__(self, jetson: Jetson, host: Host, deadline: Deadline) -> None:
        self.jetson = jetson
        self._host = host
        self._deadline = deadline
        self._transport: paramiko.Transport | None = None
        self._sftp: paramiko.SFTPClient | None = None
        self._expired = False

    def __enter__(self) -> JetsonSession:
        try:
            self._connect(self._deadline)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def where(self) -> str:
        return f"{self.jetson.user}@{self.jetson.host}:{self.jetson.port}"

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as this side knows."""
        return self._transport is not None and self._transport.is_active()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def path(self, *parts: str) -> str:
        """A path below the work folder. SSH commands and SFTP both start in the home folder: `~/` just falls away."""
        base = self.jetson.work_dir.removeprefix("~/").rstrip("/")
        return "/".join((base, *parts))

    def start(self, argv: Sequence[str], deadline: Deadline) -> RemoteProcess:
        """Start a command. The argument list is quoted word by word; no shell syntax survives."""
        return self._start(argv, deadline, argv[0])

    def _start(self, argv: Sequence[str], deadline: Deadline, name: str) -> RemoteProcess:
        with self.within(deadline, f"starting {name}") as transport:
            channel = transport.open_session(timeout=deadline.left())
            channel.exec_command(shlex.join(argv))
            return RemoteProcess(self, channel, argv)

    def run(self, argv: Sequence[str], deadline: Deadline) -> RemoteResult:
        """Run a command to its end. JetsonError when it is late; its status is the caller's to judge.

        One that is late is ended over there too, also when nobody is left here: sshd does not do that.
        """
        limited = ["timeout", "-s", "KILL", f"{deadline.left() + _LATE_S:.3f}", *argv]
        process = self._start(limited, deadline, argv[0])
        try:
            lines = []
            while (line := _get(process.lines, deadline)) is not None:
                lines.append(line)
            status = process.wait(deadline)
            if status is None or (status == -1 and not self.alive):
                raise queue.Empty
        except queue.Empty as error:
            raise JetsonError(
                f"`{shlex.join(argv)}` on {self.where} did not end within {deadline.budget_s:g} s",
                seen=process.stderr_tail or None,
            ) from error
        finally:
            process.close()
        return RemoteResult(status, b"\n".join(lines), process.stderr_tail.encode())

    def put(self, data: bytes, remote: str, deadline: Deadline) -> None:
        """Write a file on the Jetson: complete under its name or not there at all. Size and SHA-256 are compared."""
        part = f"{remote}.{hashlib.sha256(data).hexdigest()[:8]}.part"
        with self.within(deadline, f"uploading {remote}") as transport:
            sftp = self._open_sftp(transport)
            _make_folders(sftp, remote)
            with sftp.open(part, "wb") as stream:
                stream.set_pipelined(True)
                stream.write(data)
            sftp.chmod(part, stat.S_IRUSR | stat.S_IWUSR)
            with sftp.open(part, "rb") as stream:
                stream.prefetch(len(data))
                echoed = stream.read(len(data) + 1)
            if echoed != data:
                raise JetsonError(
                    f"{remote} on {self.where} does not hold what was uploaded ({len(data)} bytes)", hint=_DISK_HINT
                )
            sftp.posix_rename(part, remote)

    def has(self, remote: str, size: int, deadline: Deadline) -> bool:
        """Whether a file of that size is there."""
        with self.within(deadline, f"looking for {remote}") as transport:
            try:
                return self._open_sftp(transport).stat(remote).st_size == size
            except FileNotFoundError:
                return False

    def get(self, remote: str, local: Path, deadline: Deadline, *, size: int, sha256: str) -> None:
        """Fetch a file; JetsonError when its size or SHA-256 differ from what the far side announced."""
        digest, received = hashlib.sha256(), 0
        with self.within(deadline, f"fetching {remote}") as transport:
            with self._open_sftp(transport).open(remote, "rb") as stream, local.open("wb") as output:
                stream.prefetch(size)
                while block := stream.read(_BLOCK):
                    try:
                        output.write(block)
                    except OSError as error:
                        raise InternalError(f"cannot write {local}: {error.strerror}", hint="make room here") from error
                    digest.update(block)
                    received += len(block)
        if (received, digest.hexdigest()) != (size, sha256):
            raise JetsonError(
                f"{remote} from {self.where} arrived with {received} bytes and SHA-256 {digest.hexdigest()[:16]}…",
                seen=f"announced: {size} bytes, SHA-256 {sha256[:16]}…",
                hint="check the Jetson's disk; the file was changed after the run or is damaged",
            )

    # --- connecting --------------------------------------------------------------------------------------------------

    def _connect(self, deadline: Deadline) -> None:
        import paramiko

        pin = parse_pin(self.jetson.host_key)
        keys = [load_private_key(self.jetson.key)] if self.jetson.key else self._agent_keys()
        # Without a handler of the program's own, logging prints paramiko's tracebacks to stderr.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        try:
            connection = self._host.connect((self.jetson.host, self.jetson.port), deadline)
        except OSError as error:
            raise JetsonError(
                f"cannot reach {self.where}: {error.strerror or error}",
                hint="check power, cable, the management address and port in the bench file, and that sshd runs",
            ) from error
        try:
            _watch_for_dead_peer(connection)
            transport = paramiko.Transport(connection, disabled_algorithms={"pubkeys": ["ssh-rsa"]})
        except BaseException:
            connection.close()
            raise
        self._transport = transport
        _refuse_sha1(transport)
        transport.get_security_options().key_types = pin.algorithms
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = deadline.left()
        self._handshake(transport, pin, keys, deadline)

    def _handshake(
        self, transport: paramiko.Transport, pin: PinnedKey, keys: Sequence[paramiko.PKey], deadline: Deadline
    ) -> None:
        import paramiko

        with self.within(deadline, "the SSH handshake"):
            try:
                transport.start_client(timeout=deadline.left())
            except paramiko.ssh_exception.IncompatiblePeer as error:
                raise JetsonError(
                    f"{self.where} has no host key of the pinned type {pin.type}, or only outdated algorithms",
                    seen=str(error),
                    hint=f"if the Jetson was set up anew: {_repin(self.jetson)}",
                ) from error
            shown = PinnedKey(pin.type, transport.get_remote_server_key().asbytes())
            if shown != pin:
                raise JetsonError(
                    f"the host key of {self.where} is not the pinned one: set up anew, or something else answers",
                    seen=f"shown {shown.fingerprint}, pinned {pin.fingerprint}",
                    hint=f"{_repin(self.jetson)}\n    host_key: {shown.line}",
                )
            for number, key in enumerate(keys):
                try:
                    transport.auth_publickey(self.jetson.user, key)
                    if transport.is_authenticated():
                        return
                except paramiko.AuthenticationException as error:
                    # paramiko says the same of a connection that is gone; a server hangs up after several keys at most.
                    if self._expired or (number == 0 and not transport.is_active()):
                        raise EOFError(str(error)) from error
                if not transport.is_active():
                    break
        offered = ", ".join(key.fingerprint for key in keys)
        raise JetsonError(
            f"{self.where} refuses the login of {self.jetson.user!r}",
            seen=f"offered {offered}",
            hint="add the public key to ~/.ssh/authorized_keys of that user on the Jetson",
        )

    def _agent_keys(self) -> Sequence[paramiko.PKey]:
        import paramiko

        try:
            keys = paramiko.Agent().get_keys()
        except paramiko.SSHException as error:
            raise BenchError(f"the SSH agent does not answer: {error}", hint="restart it, or set jetson.key") from error
        if not keys:
            raise BenchError(
                "the bench file names no key (jetson.key) and the SSH agent has none",
                hint="run `ssh-add`, or set jetson.key to a private key file",
            )
        return keys

    # --- guarding -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def within(self, deadline: Deadline, doing: str) -> Iterator[paramiko.Transport]:
        """Whatever blocks inside ends with the deadline; what SSH raises becomes a JetsonError."""
        import paramiko

        transport = self._transport
        if transport is None or self._expired:
            raise JetsonError(f"no connection to {self.where} for {doing}")
        watchdog = threading.Timer(deadline.left(), self._expire)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield transport
        except PermissionError as error:
            raise JetsonError(
                f"{doing} on {self.where} is not permitted: {error}",
                hint=f"check owner and mode of {self.jetson.work_dir} (jetson.work_dir) on the Jetson",
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            if self._expired or deadline.expired():
                raise JetsonError(
                    f"{self.where} did not answer within {deadline.budget_s:g} s while {doing}",
                    hint="the machine or its sshd is frozen or overloaded: look at its console",
                ) from error
            if not transport.is_active():
                raise JetsonError(f"the connection to {self.where} was lost while {doing}", seen=str(error)) from error
            raise JetsonError(f"{doing} on {self.where} failed: {error}", hint=_disk_hint(error)) from error
        finally:
            watchdog.cancel()

    def _expire(self) -> None:
        self._expired = True
        self.close()

    def _open_sftp(self, transport: paramiko.Transport) -> paramiko.SFTPClient:
        import paramiko

        if self._sftp is None:
            self._sftp = paramiko.SFTPClient.from_transport(transport)
            if self._sftp is None:
                raise paramiko.SSHException("the SSH server offers no SFTP")
        return self._sftp


def _get(lines: queue.Queue[bytes | None], deadline: Deadline) -> bytes | None:
    return lines.get(timeout=deadline.left()) if deadline.left() else lines.get_nowait()


def _make_folders(sftp: paramiko.SFTPClient, remote: str) -> None:
    parent = ""
    for part in remote.split("/")[:-1]:
        parent = f"{parent}/{part}" if parent or not part else part
        if not parent or parent == "/":
            continue
        try:
            sftp.stat(parent)
        except FileNotFoundError:
            sftp.mkdir(parent, 0o700)


def _watch_for_dead_peer(connection: socket.socket) -> None:
    """TCP's own view of a dead peer, for data in flight and for silence; a frozen program needs the heartbeat."""
    options = (
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    )
    for level, option, value in options:
        with contextlib.suppress(OSError):  # a socket that is not TCP (a test, a proxy) has none of them
            connection.setsockopt(level, option, value)


def _refuse_sha1(transport: paramiko.Transport) -> None:
    """Key exchange and MACs that rest on SHA-1 or MD5 are never offered (signatures: see `disabled_algorithms`)."""
    options = transport.get_security_options()
    options.kex = [name for name in options.kex if "sha1" not in name]
    options.digests = [name for name in options.digests if "sha1" not in name and "md5" not in name]


def _repin(jetson: Jetson) -> str:
    return (
        f"compare with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the Jetson's own console "
        f"(or `ssh-keyscan -p {jetson.port} {jetson.host}` over a network that you trust), "
        "then put the new key into the bench file:"
    )


def _disk_hint(error: BaseException) -> str | None:
    # SFTP version 3 has no code for a full or write-protected disk; OpenSSH says just "Failure".
    return _DISK_HINT if str(error) == "Failure" else None
