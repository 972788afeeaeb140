"""How the processes of an emulated bench talk: one JSON object per datagram of a SOCK_SEQPACKET socket.

A request names its operation in `op`; its answer holds `ok: true` and results, or `ok: false`, `error` (a sentence) and
where it applies `errno`, `seen` and `hint`. File descriptors travel beside either (unix(7), SCM_RIGHTS). One request is
under way at a time on a socket. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

Message = dict[str, Any]

MAX_BYTES = 192 * 1024
"""Below the default send buffer of a unix socket (net.core.wmem_default, 208 KiB), which bounds one datagram."""
MAX_FDS = 4


class DisconnectedError(Exception):
    """The other end is gone."""


def send_message(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send one message; raises DisconnectedError, or ValueError when it is too large."""
    data = json.dumps(message).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is beyond the limit of {MAX_BYTES}")
    try:
        socket.send_fds(sock, [data], list(fds))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise DisconnectedError from error


def receive_message(sock: socket.socket) -> tuple[Message, tuple[int, ...]]:
    """Wait for one message and its descriptors (close-on-exec, the caller's to close); raises DisconnectedError."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, MAX_BYTES, MAX_FDS)
    except ConnectionResetError as error:
        raise DisconnectedError from error
    if not data:
        raise DisconnectedError
    for fd in fds:
        os.set_inheritable(fd, False)
    message: Message = json.loads(data)
    return message, tuple(fds)


def ask(sock: socket.socket, request: Message, timeout_s: float) -> Message:
    """One request and its answer, for the bench's own parts; raises DisconnectedError, or TimeoutError."""
    send_message(sock, request)
    if not select.select([sock], [], [], timeout_s)[0]:
        raise TimeoutError(f"no answer to {request.get('op')!r} within {timeout_s} s")
    return receive_message(sock)[0]


def ok(**results: Any) -> Message:
    return {"ok": True, **results}


def failed(error: str, **details: Any) -> Message:
    return {"ok": False, "error": error, **details}
