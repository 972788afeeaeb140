"""The controller's connection to its bench: each asker gets its own answer."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rig.emulation import client as module
from rig.emulation.client import HolderClient
from rig.emulation.messages import DisconnectedError, ok, receive_message, send_message


@dataclass
class Bench:
    """Answers every request with its own name and the reading end of a pipe; keeps the writing ends, in order."""

    sock: socket.socket
    pipes: list[int] = field(default_factory=list)

    def serve(self) -> None:
        with contextlib.suppress(DisconnectedError):
            while True:
                request, _ = receive_message(self.sock)
                reader, writer = os.pipe()
                self.pipes.append(writer)
                send_message(self.sock, ok(said=request["op"], number=request["number"]), (reader,))
                os.close(reader)


@pytest.fixture
def connected() -> Iterator[tuple[HolderClient, Bench]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bench = Bench(theirs)
    thread = threading.Thread(target=bench.serve)
    thread.start()
    client = HolderClient(ours)
    yield client, bench
    client.close()
    thread.join()
    theirs.close()
    for pipe in bench.pipes:
        os.close(pipe)


def test_answer_of_an_interrupted_request_is_not_taken_for_that_of_the_next(
    connected: tuple[HolderClient, Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, bench = connected
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(module.select, "select", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                client.ask("first")
    answer, fds = client.ask("second")
    assert answer == {"ok": True, "said": "second"}
    assert len(fds) == 1
    *dropped, given = bench.pipes
    assert all(_has_no_reader(pipe, 10_000) for pipe in dropped), "descriptors of dropped answers are closed"
    assert not _has_no_reader(given, 0)
    os.close(fds[0])


def _has_no_reader(pipe: int, patience_ms: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(patience_ms))
