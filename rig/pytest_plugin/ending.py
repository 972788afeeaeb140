"""The end of a session: what tests still hold is given back first, then the bench is released.

After an interrupt that is the capture, lease and board of the test that it hit. Each further interrupt cuts short
whatever is being torn down at that moment; the rest is torn down all the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator

import pytest

from rig.pytest_plugin.invocation import INVOCATION, Invocation
from rig.pytest_plugin.verdicts import expected, single_errors


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with item.config.stash[INVOCATION].interruptible():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    stack = item.session._setupstate.stack
    before = dict(stack)
    try:
        return (yield)
    except (KeyboardInterrupt, pytest.exit.Exception):
        # pytest forgets what it has not come to. The lists of finalizers are still those that it was taking them from.
        stack.clear()
        stack.update(before)
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # First of all: pytest itself would tear down after the bench is gone, and a worker of pytest-xdist may be ended at
    # any moment once it has said that it has finished.
    invocation = session.config.stash[INVOCATION]
    try:
        _tear_down(session, invocation)
    finally:
        invocation.close()


def _tear_down(session: pytest.Session, invocation: Invocation) -> None:
    """Tear down all that is still set up, and print what goes wrong; raises what nobody expects."""
    unexpected: list[BaseException] = []
    stack = session._setupstate.stack
    while stack:
        _, (finalizers, _) = stack.popitem()
        while finalizers:
            try:
                with invocation.interruptible():
                    finalizers.pop()()
            except BaseException as error:  # noqa: BLE001 - raised below, once everything is torn down
                for one in single_errors(error):
                    if told := expected(one):
                        with contextlib.suppress(OSError):  # the terminal may be what was lost
                            print("\n" + " ".join(told), file=sys.stderr)
                    elif not isinstance(one, KeyboardInterrupt):
                        unexpected.append(one)
    if unexpected:
        raise unexpected[0]
