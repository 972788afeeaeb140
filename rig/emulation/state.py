"""What an emulated bench keeps between its lives: the board's flash, the SSH keys, and the lock over them.

The folder is that of the bench's lasting state (XDG base directory specification). One bench process at a time has it:
a second one is told whose it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.bench.lease import state_folder
from rig.errors import BenchError, InternalError


@dataclass(frozen=True)
class BenchState:
    """Paths of one emulated bench. instance: tells benches of one file apart, such as those of test workers."""

    name: str
    folder: Path

    @classmethod
    def of(cls, bench: str, instance: str | None) -> BenchState:
        name = bench if instance is None else f"{bench}.{instance}"
        return cls(name, state_folder(name).absolute())

    @property
    def host_key(self) -> Path:
        return self.folder / "host_key"

    @property
    def user_key(self) -> Path:
        return self.folder / "user_key"

    @property
    def lock_file(self) -> Path:
        return self.folder / "emulation.lock"

    @property
    def control_address(self) -> str:
        """Abstract unix address (unix(7)) of a bench that was brought up: it cannot outlive the bench."""
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return f"\0rig-bench/{os.getuid()}/{digest}"

    def lock(self) -> int:
        """Take the folder, made if missing; returns the descriptor that holds the lock (it is the caller's).

        Raises BenchError naming the holder, or InternalError when the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "run").mkdir(exist_ok=True, mode=0o700)
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InternalError(
                f"cannot use {error.filename or self.folder} for the state of the emulated bench: {error.strerror}",
                hint="make the folder writable, or set XDG_STATE_HOME to one that is",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise BenchError(
                f"the emulated bench {self.name!r} is busy: {describe_holder(self.lock_holder())}",
                hint="wait for that run to end, or use another bench file with its own name",
            ) from error
        holder = {
            "pid": os.getpid(),
            "since": time.time(),
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        }
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(holder).encode(), 0)
        return fd

    def lock_holder(self) -> dict[str, Any] | None:
        """Who holds the folder (pid, since, command), {} when unknown, None when nobody does."""
        try:
            fd = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            try:
                holder = json.loads(os.pread(fd, 65_536, 0))
            except ValueError:
                return {}
            return holder if isinstance(holder, dict) else {}
        finally:
            os.close(fd)

    def make_keys(self) -> None:
        """Make the Jetson's host key and the rig's user key where they are missing. Needs the lock."""
        for path, comment in ((self.host_key, f"host-key@{self.name}"), (self.user_key, f"rig@{self.name}")):
            public_path = path.with_suffix(".pub")
            if path.exists() and public_path.exists():
                path.chmod(0o600)
                continue
            private, public = _new_key()
            _write_private(path, private)
            public_path.write_text(f"{public} {comment}\n")


def describe_holder(holder: dict[str, Any] | None) -> str:
    """`held by pid 12 (pytest testplans/) since 07:12:09`."""
    if not holder:
        return "held by a process that has not said its name yet"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.get("since", 0)))
    return f"held by pid {holder.get('pid')} ({holder.get('command')}) since {since}"


def _new_key() -> tuple[bytes, str]:
    """A fresh Ed25519 key in OpenSSH's formats. Made here because ssh-keygen refuses users without a passwd entry."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _write_private(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as stream:
        stream.write(data)
