"""Pins and key files: what is accepted and what the refusals say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rig.errors import BenchError
from rig.jetson.keys import load_private_key, parse_pin

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@needs_ssh_keygen
@pytest.mark.parametrize(
    ("kind", "bits", "algorithms"),
    [
        ("ed25519", "256", ("ssh-ed25519",)),
        ("ecdsa", "256", ("ecdsa-sha2-nistp256",)),
        ("ecdsa", "521", ("ecdsa-sha2-nistp521",)),
        ("rsa", "2048", ("rsa-sha2-512", "rsa-sha2-256")),
    ],
)
def test_common_key_types_are_understood(tmp_path: Path, kind: str, bits: str, algorithms: tuple[str, ...]) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-b", bits, "-N", "", "-f", path], check=True)
    public = path.with_suffix(".pub")
    pin = parse_pin(public.read_text())
    listed = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True).stdout
    assert pin.fingerprint == listed.split()[1]
    assert pin.algorithms == algorithms
    assert public.read_text().startswith(pin.line)
    assert load_private_key(str(path)).get_base64() == public.read_text().split()[1]


def test_comment_after_the_key_is_allowed() -> None:
    assert parse_pin(ED25519 + " jetson@lab").line == ED25519


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a public key"),
        ("AAAAC3NzaC1lZDI1NTE5", "not a public key"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "'ssh-dss'"),
        ("10.0.0.7 ssh-ed25519 AAAA", "'10.0.0.7'"),
        ("ssh-ed25519 %%%%", "not valid base64"),
        ("ssh-ed25519 AAA", "not valid base64"),
        ("ssh-rsa " + ED25519.split()[1], "holds another type"),
        (ED25519[:-16], "cut"),
    ],
)
def test_bad_pin_is_refused_with_its_reason(text: str, says: str) -> None:
    with pytest.raises(BenchError) as caught:
        parse_pin(text)
    assert says in caught.value.what
    assert "ssh-keyscan" in str(caught.value.hint)


def test_missing_key_file_is_named() -> None:
    with pytest.raises(BenchError, match=r"/nowhere/key .*No such file"):
        load_private_key("/nowhere/key")


def test_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret")
    path.chmod(0o640)
    with pytest.raises(BenchError, match="mode 0640") as caught:
        load_private_key(str(path))
    assert caught.value.hint == f"run `chmod 600 {path}`"


@needs_ssh_keygen
def test_key_with_a_passphrase_points_to_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", path], check=True)
    with pytest.raises(BenchError, match="passphrase") as caught:
        load_private_key(str(path))
    assert "ssh-add" in str(caught.value.hint)


@pytest.mark.parametrize(
    "content", [b"", b"not a key\n", bytes(range(256)), b"-----BEGIN OPENSSH PRIVATE KEY-----\nx\n"]
)
def test_broken_key_file_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BenchError, match=str(path)):
        load_private_key(str(path))
