"""Run as a program: a relay between two veth ends and a board that echoes, in a network namespace of its own.

Reads [rules, frames] as JSON from stdin and sends the frames; prints what came out where, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from rig.emulation.impair import Rule, rule_to_json
from rig.emulation.linux import CLONE_NEWNET, CLONE_NEWUSER, map_one_user, unshare
from rig.emulation.messages import ask
from rig.emulation.relay import RelayPorts, run_relay

ETH_P_ALL, SOL_PACKET, PACKET_IGNORE_OUTGOING = 3, 263, 23


def main() -> None:
    rules, texts = json.load(sys.stdin)
    frames = [bytes.fromhex(text) for text in texts]
    enter_namespace()
    control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    wire, board = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for sock in (wire, board):  # small, so that a burst has to wait at the relay and cannot flood this program
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    relay = os.fork()
    if relay == 0:
        control.close()
        run_relay(control_theirs, wire, RelayPorts())
        os._exit(0)
    control_theirs.close()
    ask(control, {"op": "rules", "rules": [rule_to_json(Rule(**rule)) for rule in rules]}, 5.0)
    ports = {name: packet_socket(name) for name in ("board-port", "mirror0", "tap-a", "tap-b")}
    seen: dict[str, list[str]] = {name: [] for name in (*ports, "board")}
    sent_ns = time.monotonic_ns()
    for frame in frames:
        ports["board-port"].send(frame)
    end = time.monotonic() + 10  # the board reads nothing until the relay has taken all
    while ask(control, {"op": "counters"}, 5.0)["counters"]["to-board"]["received"] < len(frames):
        if time.monotonic() > end:
            break
    last_ns = collect(control, board, ports, seen, len(frames))
    counters = ask(control, {"op": "counters"}, 5.0)["counters"]
    control.close()
    os.waitpid(relay, 0)
    print(json.dumps({"seen": seen, "counters": counters, "took_ns": last_ns - sent_ns}))


def enter_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid != 0:
        unshare(CLONE_NEWUSER)
        map_one_user(0, 0, uid, gid)
    unshare(CLONE_NEWNET)
    lines = []
    for near, far in (("board-port", "board-wire"), *((name, f"{name}-in") for name in ("mirror0", "tap-a", "tap-b"))):
        lines += [f"link add {near} type veth peer name {far}", f"link set {near} up", f"link set {far} up"]
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def packet_socket(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.setsockopt(SOL_PACKET, 8, 1)  # PACKET_AUXDATA
    sock.bind((name, ETH_P_ALL))
    return sock


def collect(
    control: socket.socket, board: socket.socket, ports: dict[str, socket.socket], seen: dict[str, list[str]], sent: int
) -> int:
    """Echo at the board until every frame is accounted for; returns when the last one came back (ns)."""
    last_ns = 0
    names = {sock: name for name, sock in ports.items()}
    end = time.monotonic() + 10
    while time.monotonic() < end:
        readable = select.select([board, *ports.values()], [], [], 0.05)[0]
        for sock in readable:
            if sock is board:
                frame = board.recv(65_536)
                seen["board"].append(frame.hex())
                board.send(frame)
                continue
            frame, ancillary, _, _ = sock.recvmsg(65_536, 64)
            tagged = any(int.from_bytes(data[:4], sys.byteorder) & 1 << 4 for _, _, data in ancillary)
            seen[names[sock]].append(("tagged:" if tagged else "") + frame.hex())
            if names[sock] == "board-port":
                last_ns = time.monotonic_ns()
        if not readable:
            counters = ask(control, {"op": "counters"}, 5.0)["counters"]
            ways = [counters[way] for way in ("to-board", "from-board")]
            if ways[0]["received"] == sent and not any(way["in_flight"] for way in ways):
                return last_ns
    return last_ns


main()
