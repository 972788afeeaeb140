"""The few Linux calls that Python 3.11 lacks: unshare, mount, prctl, interface flags and offloads.

Standard library only: the holder of an emulated bench imports this before anything else. All raise OSError.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

# sched.h
CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
# sys/mount.h
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x4_0000
# sys/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_TIMERSLACK = 1, 15, 29
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _PR_CAP_AMBIENT_LOWER = 47, 2, 3
# linux/capability.h
CAP_NET_ADMIN, CAP_NET_RAW = 12, 13
_CAPABILITY_VERSION_3 = 0x2008_0522
# linux/sockios.h, linux/ethtool.h, net/if.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8914, 0x8946
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_ETHTOOL_SETTERS = {"tx-checksum": 0x17, "scatter-gather": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: Path, fstype: str, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    result = _libc.mount(source.encode(), os.fsencode(target), fstype.encode(), ctypes.c_ulong(flags), data.encode())
    _check(result, f"mount {fstype or source} on {target}")


def die_with_parent() -> None:
    """SIGKILL for this process when the *thread* that made it ends (prctl(2)). Cleared by unshare(CLONE_NEWUSER)."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl PR_SET_PDEATHSIG")


def set_process_name(name: str) -> None:
    """The name that ps shows, 15 bytes."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0), "prctl PR_SET_NAME")


def be_punctual() -> None:
    """Least timer slack, and real-time priority where that is permitted; without it timers are merely later."""
    _check(_libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0), "prctl PR_SET_TIMERSLACK")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return


def map_one_user(inside_uid: int, inside_gid: int, outside_uid: int, outside_gid: int) -> None:
    """Write the id maps of the user namespace just made (user_namespaces(7)): one uid, one gid, no setgroups."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inside_uid} {outside_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inside_gid} {outside_gid} 1")


def keep_over_exec(capabilities: Sequence[int]) -> None:
    """Let the programs that this process becomes or starts have these of its capabilities (*ambient*, capabilities(7)).

    Needed by whoever has them in its user namespace without being root there.
    """
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    low_effective, low_permitted, low_inheritable, *high = struct.unpack("6I", data.raw)
    for capability in capabilities:
        low_inheritable |= 1 << capability
    data.raw = struct.pack("6I", low_effective, low_permitted, low_inheritable, *high)
    _check(_libc.capset(header, data), "capset")
    for capability in capabilities:
        _check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0), "prctl PR_CAP_AMBIENT_RAISE")


def lose_at_exec(capability: int) -> None:
    """Take back what `keep_over_exec` promised of one capability."""
    _check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0), "prctl PR_CAP_AMBIENT_LOWER")


def set_link_up(interface: str, up: bool) -> None:
    """Set or clear IFF_UP of an interface of this network namespace (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH22x", interface.encode(), 0)
        flags = struct.unpack("16sH22x", fcntl.ioctl(sock, _SIOCGIFFLAGS, request))[1]
        flags = flags | _IFF_UP if up else flags & ~_IFF_UP
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH22x", interface.encode(), flags))


def link_runs(interface: str) -> bool:
    """Whether the kernel calls the interface operational (IFF_RUNNING): it then sends what it is given."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        reply = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sH22x", interface.encode(), 0))
    return bool(struct.unpack("16sH22x", reply)[1] & _IFF_RUNNING)


def offloads_off(interface: str) -> None:
    """Switch checksum and segmentation offloads off, so that every frame is on the wire as a NIC would send it.

    A veth with transmit checksum offload hands on partial checksums, which an emulated board must reject.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _ETHTOOL_SETTERS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(sock, _SIOCETHTOOL, request)


def _check(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
