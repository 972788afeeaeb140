"""The controller's connection to its bench: each asker gets its own answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from rig.emulation import client as module
from rig.emulation.client import HolderClient
from rig.emulation.messages import DisconnectedError, ok, receive_message, send_message


@pytest.fixture
def client() -> Iterator[HolderClient]:
    """Connected to a bench that answers every request with its own name, and a descriptor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def serve() -> None:
        while True:
            try:
                request, _ = receive_message(theirs)
            except DisconnectedError:
                return
            reader, writer = os.pipe()
            send_message(theirs, ok(said=request["op"], number=request["number"]), (reader,))
            os.close(reader)
            os.close(writer)

    thread = threading.Thread(target=serve)
    thread.start()
    connected = HolderClient(ours)
    yield connected
    connected.close()
    thread.join()
    theirs.close()


def test_answer_of_an_interrupted_request_is_not_taken_for_that_of_the_next(
    client: HolderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(module.select, "select", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                client.ask("first")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    answer, fds = client.ask("second")
    assert answer == {"ok": True, "said": "second"}
    assert len(os.listdir("/proc/self/fd")) == before + len(fds), "descriptors of dropped answers are closed"  # noqa: PTH208
    for fd in fds:
        os.close(fd)
