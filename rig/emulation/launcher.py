"""Started by the controller as a program: makes the namespaces of an emulated bench and its PID 1, then waits.

`python -I -S launcher.py SETTINGS` with SETTINGS as JSON (see `parts.Settings`). Single-threaded and small, because
unshare(CLONE_NEWUSER) is refused to threads. Dies with the controller's thread, and its child with it, and with that
child (PID 1 of its namespace) everything else: the kernel cleans up, whatever killed the controller.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # -I leaves out the folder of the rig package

from rig.emulation.holder import run_holder
from rig.emulation.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    die_with_parent,
    map_one_user,
    set_process_name,
    unshare,
)
from rig.emulation.messages import DisconnectedError, failed, receive_message, send_message
from rig.emulation.parts import Settings

_USER_NAMESPACE_HINT = (
    "this user may not make namespaces: as root, `sysctl user.max_user_namespaces=10000`, and where they exist "
    "`kernel.unprivileged_userns_clone=1` and `kernel.apparmor_restrict_unprivileged_userns=0`; or run as root"
)


def main() -> None:
    settings = Settings.from_json(sys.argv[1])
    for fd in settings.fds():
        os.set_inheritable(fd, False)
    die_with_parent()
    control = socket.socket(fileno=settings.control_fd)
    try:
        privileged = _enter_namespaces()
    except OSError as error:
        with_hint = failed(f"cannot make the namespaces of the emulated bench: {error}", hint=_USER_NAMESPACE_HINT)
        try:
            receive_message(control)
            send_message(control, with_hint)
        except DisconnectedError:
            pass
        sys.exit(1)
    if os.getppid() != settings.controller_pid:  # it ended before die_with_parent took hold
        sys.exit(1)
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        set_process_name("rig-bench")
        run_holder(settings, control, privileged)
        os._exit(0)
    set_process_name("rig-launcher")
    for fd in settings.fds()[1:]:
        os.close(fd)
    control.close()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)


def _enter_namespaces() -> bool:
    """Unshare what a bench needs; returns whether that was done as real root (no user namespace)."""
    uid, gid = os.getuid(), os.getgid()
    privileged = uid == 0
    if not privileged:
        unshare(CLONE_NEWUSER)
        map_one_user(0, 0, uid, gid)
        die_with_parent()  # the new user namespace cleared it
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID)
    return privileged


if __name__ == "__main__":
    main()
