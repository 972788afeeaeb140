"""The emulated Jetson: a real sshd in a network and mount namespace of its own.

Public-key log-in only, one user, `jetson`, which is whoever runs the bench (a bind-mounted passwd file says so), with
the home /run/jetson. In an unprivileged bench sshd cannot switch users, not even to the same one (setgroups is
forbidden there), so it runs in one more user namespace under the caller's own id, as sshd run by a user does. That
namespace owns the Jetson's network, and sshd hands CAP_NET_RAW on: its user may capture, as where dumpcap was given
the capabilities for it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rig.emulation import network
from rig.emulation.linux import (
    CAP_NET_ADMIN,
    CAP_NET_RAW,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    keep_over_exec,
    lose_at_exec,
    map_one_user,
    mount,
    set_process_name,
    unshare,
)

USER = "jetson"
_HOME = "/run/jetson"


@dataclass(frozen=True)
class JetsonFiles:
    """run: an empty folder that becomes the Jetson's /run. host_key, user_key: private key files beside `.pub`."""

    run: Path
    host_key: Path
    user_key: Path
    log: Path


def run_jetson(files: JetsonFiles, uid: int, gid: int, privileged: bool, ready: int, links_moved: int) -> None:
    """Become the Jetson: never returns but by an exception.

    Writes a byte to `ready` once its network namespace exists, waits for a byte from `links_moved`, writes another to
    `ready` once its links are up, then runs sshd.
    """
    set_process_name("rig-jetson")
    if not privileged:
        unshare(CLONE_NEWUSER)
        map_one_user(uid, gid, 0, 0)
        keep_over_exec((CAP_NET_ADMIN, CAP_NET_RAW))  # of the first for ip(8) only
    unshare(CLONE_NEWNET | CLONE_NEWNS)
    os.write(ready, b"1")
    os.read(links_moved, 1)
    network.configure_jetson(gid)
    os.write(ready, b"2")
    _prepare_files(files, uid, gid)
    if not privileged:
        lose_at_exec(CAP_NET_ADMIN)
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if sshd is None:
        raise FileNotFoundError("sshd is not installed")
    log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    os.execv(sshd, [sshd, "-D", "-e", "-f", "/run/sshd_config"])


def _prepare_files(files: JetsonFiles, uid: int, gid: int) -> None:
    run = files.run
    run.chmod(0o755)
    for name, mode in (("sshd", 0o755), (USER, 0o700)):
        (run / name).mkdir(mode=mode)
    _write(run / "sshd_config", _sshd_config())
    _write(run / "host_key", files.host_key.read_text(), 0o600)
    _write(run / "authorized_keys", files.user_key.with_suffix(".pub").read_text(), 0o600)
    passwd = [f"{USER}:*:{uid}:{gid}:emulated Jetson:{_HOME}:/bin/sh"]
    if uid != 0:
        passwd.append("root:*:0:0:root:/nonexistent:/usr/sbin/nologin")
    passwd.append("sshd:*:65533:65534::/run/sshd:/usr/sbin/nologin")
    groups = [f"{USER}:*:{gid}:", "nogroup:*:65534:"]
    if gid != 0:
        groups.append("root:*:0:")
    for name, lines in (("passwd", passwd), ("group", groups)):
        _write(run / name, "\n".join(lines) + "\n")
        mount(str(run / name), Path("/etc") / name, "", MS_BIND)
    mount(str(run), Path("/run"), "", MS_BIND)


def _sshd_config() -> str:
    return "\n".join(
        [
            f"ListenAddress {network.JETSON_MANAGEMENT_ADDRESS}:{network.JETSON_SSH_PORT}",
            "HostKey /run/host_key",
            "AuthorizedKeysFile /run/authorized_keys",
            f"AllowUsers {USER}",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "StrictModes no",  # the bench made these files; their folder may lie below a sticky /tmp
            "UsePAM no",
            "UseDNS no",
            "PidFile none",
            "PrintMotd no",
            "PrintLastLog no",
            "X11Forwarding no",
            "AllowTcpForwarding no",
            "AllowAgentForwarding no",
            "Subsystem sftp internal-sftp",
            "LogLevel VERBOSE",
            "",
        ]
    )


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
