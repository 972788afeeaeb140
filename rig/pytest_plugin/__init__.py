"""The pytest plugin: plans become test items, hand-written tests get the bench as fixtures (docs/pytest.md).

    collection.py   *.plan.yaml → one item per check of a point, one per comparison
    items.py        those items: which run decides, what the verdict is to pytest and JUnit
    runs.py         the runs that the items of a plan share
    fixtures.py     bench, board, jetson, capture, record_dir
    verdicts.py     what goes wrong → pytest's outcomes, JUnit's failure and error, the property `verdict`
    ending.py       the end of a session, which an interrupt brings about early
    reporting.py    the live line, the table at the end
    workers.py      pytest-xdist: each worker has its own bench, and an end reaches them all
    scheduler.py    pytest-xdist: a run, or a plan that is one experiment, stays on one worker
    invocation.py   what one pytest process holds: which bench, which set, the campaign

Nothing heavy is imported before the first run: `pytest --collect-only` loads no NumPy, paramiko, pyserial or scapy.
"""

from __future__ import annotations

import pytest

from rig.errors import RigError
from rig.pytest_plugin.invocation import INVOCATION, Invocation
from rig.pytest_plugin.workers import Workers, become_worker, worker_count

pytest_plugins = (
    "rig.pytest_plugin.collection",
    "rig.pytest_plugin.ending",
    "rig.pytest_plugin.fixtures",
    "rig.pytest_plugin.reporting",
    "rig.pytest_plugin.verdicts",
)

_MARKERS = (
    "plan: every check of a plan has it; `-m 'not plan'` leaves the hand-written tests",
    "requires(capability): the bench file must list this capability, else the test is skipped",
    "requirement(id): what is verified; becomes the JUnit property `requirement`",
    "firmware(variant, flash): what the fixture `board` flashes, as in a plan's `firmware:` section",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rig", "hardware-in-the-loop rig")
    group.addoption(
        "--bench",
        metavar="FILE",
        action="append",
        help="bench file; with -n name one per worker (Env: RIG_BENCH, Default: benches/emulated.yaml)",
    )
    group.addoption(
        "--firmware", metavar="IMAGE", help="flash this image (.elf, .hex, .bin) instead of the plan's variant"
    )
    group.addoption("--record-dir", metavar="DIR", help="folder for run records (Default: captures)")


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    invocation = config.stash[INVOCATION] = Invocation(config)
    invocation.take_signals()
    if hasattr(config, "workerinput"):
        become_worker()
        return
    try:
        benches = invocation.choose_benches(worker_count(config))
    except RigError as error:
        raise pytest.UsageError(str(error)) from error
    if worker_count(config):
        workers = Workers(benches, invocation.set_id)
        invocation.on_further_interrupt = workers.hurry
        config.pluginmanager.register(workers, "rig-workers")


def pytest_unconfigure(config: pytest.Config) -> None:
    if INVOCATION in config.stash:
        config.stash[INVOCATION].close()
        config.stash[INVOCATION].give_signals_back()
