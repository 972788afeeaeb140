"""Under pytest-xdist: each worker has a bench of its own, and an end reaches them all.

The controlling process alone hears the terminal. When it is interrupted it asks each worker with SIGTERM, waits for
their teardown as long as that may take, and passes a second interrupt on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from rig.deadline import Deadline
from rig.pytest_plugin.invocation import BenchChoice

if TYPE_CHECKING:
    from rig.pytest_plugin.scheduler import RunScheduling

TEARDOWN_S = 40.0
"""A run's own teardown budget and the release of the bench; then pytest-xdist kills what is left."""
HURRY_S = 10.0
"""The same after a second interrupt."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def worker_count(config: pytest.Config) -> int:
    """How many workers pytest-xdist will start; 0 when this process runs the items itself."""
    if config.option.collectonly or config.getoption("dist", "no") == "no" or not config.getoption("tx"):
        return 0
    from xdist.workermanage import parse_tx_spec_config

    return len(parse_tx_spec_config(config))


def become_worker() -> None:
    """Called in each worker: only the controlling process ends it, and its death too."""
    # Ctrl-C goes to the foreground process group. A worker that heard it as well would be interrupted twice, and the
    # second interrupt cuts a teardown short.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Workers:
    """Registered as a plugin in the controlling process when it distributes."""

    def __init__(self, benches: Sequence[BenchChoice], set_id: str) -> None:
        self._free = list(benches)
        self._set_id = set_id
        self._nodes: dict[Any, BenchChoice] = {}
        self._deadline = Deadline.after(0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        bench = self._free.pop(0)
        self._nodes[node] = bench
        node.workerinput["rig"] = {"bench": bench.file, "instance": bench.instance, "set_id": self._set_id}

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed is replaced: its bench is the one that is free.
        if node in self._nodes:
            self._free.append(self._nodes.pop(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> RunScheduling | None:
        if config.getoption("dist") not in ("load", "worksteal", "loadscope"):
            return None  # loadfile keeps them together by itself
        from rig.pytest_plugin.scheduler import RunScheduling

        return RunScheduling(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        # A worker that died says nothing about the product: ERROR, and the replacement runs the rest.
        report.when = "setup"
        report.longrepr = f"ERROR rig: {report.longrepr}"

    def pytest_keyboard_interrupt(self) -> None:
        self._deadline = Deadline.after(TEARDOWN_S)
        self._interrupt_all()
        for node in self._nodes:
            while not self._deadline.expired() and not _is_over(node):
                pass

    def hurry(self) -> None:
        """A further interrupt of the controlling process: cut the workers' teardown short."""
        self._deadline = self._deadline.at_most(HURRY_S)
        self._interrupt_all()

    def _interrupt_all(self) -> None:
        for node in self._nodes:
            with contextlib.suppress(OSError):
                os.kill(node.gateway._rinfo().pid, signal.SIGTERM)


def _is_over(node: Any) -> bool:
    """Whether a worker has come to its end; waits for it a moment."""
    channel = getattr(node, "channel", None)
    if channel is None:
        return True
    try:
        channel.waitclose(0.2)
    except channel.TimeoutError:
        return False
    except (OSError, EOFError, channel.RemoteError):
        return True
    return True
