"""Signals while something is being closed wait until it is closed, and are not forgotten then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from rig.interrupts import ENDINGS, Ends, held_back, interrupt


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {signum: signal.signal(signum, interrupt) for signum in ENDINGS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("signum", ENDINGS)
def test_every_ending_signal_is_one_interrupt_with_its_name(signum: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match=signum.name):
        signal.raise_signal(signum)


@pytest.mark.parametrize("signum", ENDINGS)
def test_signal_in_a_held_back_block_comes_after_its_last_line(signum: signal.Signals) -> None:
    done = []

    def close() -> None:
        with held_back():
            signal.raise_signal(signum)
            signal.raise_signal(signal.SIGINT)
            done.append("last line")

    with pytest.raises(KeyboardInterrupt, match=signum.name):
        close()
    assert done == ["last line"]
    assert all(signal.getsignal(each) is interrupt for each in ENDINGS)


def test_an_ignored_signal_does_not_take_the_place_of_the_next_one() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

    def close() -> None:
        with held_back():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="SIGINT"):
        close()


def test_nested_blocks_hold_back_until_the_outer_one_is_left() -> None:
    done = []

    def close() -> None:
        with held_back():
            with held_back():
                signal.raise_signal(signal.SIGTERM)
            done.append("between")

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        close()
    assert done == ["between"]


def test_everything_is_closed_although_a_signal_comes_in_between() -> None:
    closed = []

    def use() -> None:
        with Ends() as ends:
            ends.callback(closed.append, "first")
            ends.callback(signal.raise_signal, signal.SIGHUP)
            ends.callback(closed.append, "second")

    with pytest.raises(KeyboardInterrupt, match="SIGHUP"):
        use()
    assert closed == ["second", "first"]


def test_error_that_ends_the_block_survives_when_no_signal_came() -> None:
    with pytest.raises(ValueError, match="own"), Ends():
        raise ValueError("own")


def test_other_threads_are_never_interrupted_and_change_no_handler() -> None:
    seen = []

    def work() -> None:
        with held_back():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [interrupt]
