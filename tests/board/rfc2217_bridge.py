"""A serial server as labs run it: pyserial's own RFC 2217 engine between TCP and the emulated board's pseudo-terminal.

DTR and RTS, which a pseudo-terminal lacks, drive the emulated board's reset and boot lines, as a USB adapter's wires
do; parity, which it lacks too, is noted.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Any

import serial
from serial import rfc2217

from rig.board.lines import EmulatedBoard


class _Port:
    """What PortManager drives: settings go to the terminal as far as it has them."""

    cts = dsr = ri = cd = False

    def __init__(self, path: str, board: EmulatedBoard, log: list[tuple[str, Any]]) -> None:
        object.__setattr__(self, "_serial", serial.Serial(path, 115_200, timeout=0.02))
        object.__setattr__(self, "_settings", {"parity": "N", "dtr": False, "rts": False})
        object.__setattr__(self, "_board", board)
        object.__setattr__(self, "_log", log)

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__["_settings"]
        return settings[name] if name in settings else getattr(self.__dict__["_serial"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        inner = self.__dict__
        inner["_log"].append((name, value))
        if name in inner["_settings"]:
            inner["_settings"][name] = value
            drive = {"dtr": inner["_board"].set_reset, "rts": inner["_board"].set_boot}.get(name)
            if drive is not None:
                drive(bool(value))
        else:
            setattr(inner["_serial"], name, value)


class Bridge:
    """Serves one client after the other on a local TCP port. log: every setting, in order."""

    def __init__(self, path: str, board: EmulatedBoard) -> None:
        self.log: list[tuple[str, Any]] = []
        self._port = _Port(path, board, self.log)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"rfc2217://127.0.0.1:{self._server.getsockname()[1]}"
        self._client: socket.socket | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rfc2217", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end.is_set():
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            # Three small messages a block: with Nagle's algorithm each would wait for a delayed ACK (40 ms).
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._client = client
            with client:
                self._bridge(client)

    def hang_up(self) -> None:
        """The server's end of the connection goes, as when its machine is restarted."""
        assert self._client is not None
        self._client.shutdown(socket.SHUT_RDWR)

    def _bridge(self, client: socket.socket) -> None:
        sending = threading.Lock()
        gone = threading.Event()

        class Connection:
            def write(self, data: bytes) -> None:
                with sending, contextlib.suppress(OSError):
                    client.sendall(data)

        connection = Connection()
        manager = rfc2217.PortManager(self._port, connection)

        def to_client() -> None:
            while not gone.is_set():
                if data := self._port.read(self._port.in_waiting or 1):
                    connection.write(b"".join(manager.escape(data)))

        reader = threading.Thread(target=to_client, daemon=True)
        reader.start()
        with contextlib.suppress(OSError):
            while data := client.recv(4096):
                self._port.write(b"".join(manager.filter(data)))
        gone.set()
        reader.join()

    def __enter__(self) -> Bridge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)
        self._port.close()
