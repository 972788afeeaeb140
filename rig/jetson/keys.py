"""SSH keys of the Jetson: the pinned host key of the bench file and the private key that logs in. No network here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rig.errors import BenchError

if TYPE_CHECKING:
    import paramiko

ALGORITHMS: Final[dict[str, tuple[str, ...]]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    # An RSA key signs with SHA-2 (RFC 8332); the SHA-1 signature that shares the key's name is never offered.
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
"""Host key type as a public key names it → signature algorithms that we accept for it."""


@dataclass(frozen=True)
class PinnedKey:
    """A public host key: its type and its blob (RFC 4253 section 6.6)."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @property
    def line(self) -> str:
        """As the bench file wants it."""
        return f"{self.type} {base64.b64encode(self.blob).decode()}"

    @property
    def algorithms(self) -> tuple[str, ...]:
        return ALGORITHMS[self.type]


def parse_pin(text: str) -> PinnedKey:
    """`ssh-ed25519 AAAA… [comment]` → PinnedKey; BenchError for anything else, and for types that we do not speak."""
    hint = "copy the line that `ssh-keyscan -t ed25519 HOST` prints, without its first word, and verify its fingerprint"
    words = text.split()
    if len(words) < 2:
        raise BenchError(f"jetson.host_key is {text!r}, not a public key such as `ssh-ed25519 AAAA…`", hint=hint)
    if words[0] not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise BenchError(f"jetson.host_key is of type {words[0]!r}; the rig knows {known}", hint=hint)
    try:
        blob = base64.b64decode(words[1], validate=True)
        size = struct.unpack_from(">I", blob)[0]
    except (binascii.Error, struct.error) as error:
        raise BenchError(f"jetson.host_key is not valid base64 after {words[0]!r}", hint=hint) from error
    if blob[4 : 4 + size] != words[0].encode() or len(blob) < 4 + size + 4 + 32:
        raise BenchError(f"jetson.host_key is cut or holds another type than {words[0]!r}", hint=hint)
    return PinnedKey(words[0], blob)


def load_private_key(name: str) -> paramiko.PKey:
    """The key file of the bench file (`jetson.key`). BenchError when missing, readable by others, encrypted, broken."""
    import paramiko

    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise BenchError(
            f"cannot use the key file {path} (jetson.key): {error.strerror}",
            hint="name a private key that exists, or leave `key` out to use the SSH agent",
        ) from error
    if mode & 0o077:
        raise BenchError(
            f"the key file {path} can be read by others (mode {mode & 0o777:04o})", hint=f"run `chmod 600 {path}`"
        )
    try:
        return paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError) as error:  # TypeError: cryptography's own, no password given
        raise BenchError(
            f"the key file {path} has a passphrase",
            hint="load it into the SSH agent (`ssh-add`) and leave `key` out of the bench file",
        ) from error
    except (paramiko.SSHException, ValueError, OSError) as error:
        raise BenchError(f"the key file {path} cannot be read as a private key: {error}") from error
    except Exception as error:  # paramiko's UnknownKeyType is no SSHException in every version
        if type(error).__name__ != "UnknownKeyType":
            raise
        raise BenchError(f"the key file {path} is of a type that paramiko does not know") from error
