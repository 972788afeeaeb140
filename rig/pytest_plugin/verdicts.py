"""What goes wrong in a hand-written test that uses the bench, said as a plan's check would say it.

An AssertionError, or a board that does not boot after a verified flash, is FAIL and JUnit's failure. A RigError, in a
fixture or in the test, is ERROR; `inconclusive(reason)` and a capture with losses are INCONCLUSIVE: JUnit's errors,
shown without a traceback.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import pytest

from rig.errors import RigError
from rig.pytest_plugin.reporting import progress_of, shown_with
from rig.summary import Row

_VERDICT = pytest.StashKey[str]()
_REASON = pytest.StashKey[str]()
"""Both of an item that used the bench, once it is not simply passing: the first that went wrong."""
_INTERRUPTED = pytest.StashKey[bool]()


class InconclusiveError(Exception):
    """The evidence could not have shown the truth."""


def inconclusive(reason: str) -> NoReturn:
    """End a test whose evidence is not sound; neither PASS nor FAIL would be true."""
    raise InconclusiveError(reason)


def uses_bench(item: pytest.Item) -> bool:
    """Whether a hand-written test asks for one of our fixtures (and no fixture of its own has taken that name)."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info is not None else ()
    return any(defs and defs[-1].func.__module__ == "rig.pytest_plugin.fixtures" for defs in definitions)


def verdict_so_far(item: pytest.Item) -> str:
    """PASS until something has gone wrong; an interrupted test has shown nothing."""
    return item.stash.get(_VERDICT, "PASS")


def outcome_so_far(item: pytest.Item) -> str:
    """`completed` or `interrupted`, as in run.json."""
    return "interrupted" if item.stash.get(_INTERRUPTED, False) else "completed"


def expected(error: BaseException) -> tuple[str, str] | None:
    """Verdict and sentence of what can go wrong on a bench; None for anything else."""
    from rig.board.report import BootFailure

    if isinstance(error, RigError):
        return "ERROR", str(error)
    if isinstance(error, InconclusiveError):
        return "INCONCLUSIVE", str(error)
    if isinstance(error, BootFailure):
        return "FAIL", f"alive: {error}"
    return None


def single_errors(error: BaseException) -> Iterator[BaseException]:
    """Those of a group, such as of several fixtures that could not be torn down, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from single_errors(one)
    else:
        yield error


def _translated(item: pytest.Item) -> Generator[None, Any, Any]:
    if not uses_bench(item):
        return (yield)
    try:
        return (yield)
    except BaseException as error:
        ones = list(single_errors(error))
        for one in ones:
            if isinstance(one, KeyboardInterrupt | pytest.exit.Exception):
                item.stash[_INTERRUPTED] = True
                item.stash.setdefault(_VERDICT, "INCONCLUSIVE")
                raise one  # noqa: B904 - not of the group that it may be in, which pytest would take for a failure
        told = [expected(one) for one in ones]
        if None in told:
            raise
        # In the order in which verdicts are summed up.
        said = sorted(filter(None, told), key=lambda one: ("FAIL", "ERROR", "INCONCLUSIVE").index(one[0]))
        item.stash.setdefault(_VERDICT, said[0][0])
        # Without `from None` the error would be shown a second time, in front and with its traceback.
        raise pytest.fail.Exception("\n".join(map(" ".join, said)), pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _translated(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _translated(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _translated(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not uses_bench(item):
        return report
    if call.excinfo is not None and not report.passed:
        usual = "SKIP" if report.skipped else "FAIL" if report.when == "call" else "ERROR"
        verdict = item.stash.setdefault(_VERDICT, usual)
        item.stash.setdefault(_REASON, str(call.excinfo.value).partition("\n")[0])
        # pytest and JUnit tell failure from error by the phase alone; here it is the verdict that decides.
        if report.failed and report.when != "teardown":
            report.when = "call" if verdict == "FAIL" else "setup"
    if report.when == "teardown":
        verdict = verdict_so_far(item)
        requirements = [str(mark.kwargs.get("id", "")) for mark in item.iter_markers("requirement")]
        report.user_properties += [("verdict", verdict), *(("requirement", one) for one in requirements)]
        row = Row(verdict, item.name, note=item.stash.get(_REASON, "").removeprefix(f"{verdict} "))
        # Without a folder of its own it has begun no run, and the lines are those of the run before.
        own = "record_dir" in getattr(item, "fixturenames", ())
        shown_with(item, row, progress_of(item.config).lines if own else ())
    return report
