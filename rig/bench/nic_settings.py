"""Switches off what a bench wants off in its NICs, and puts exactly that back, also after a kill.

What is about to change is written to a journal first; the journal is removed once everything is back. The next start
on the bench finds what a killed run has left there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rig.bench.host import Host
from rig.bench.model import NicGroup
from rig.bench.nic import NicState, governors, last_line, read_nics, read_segment, segment_interfaces
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError, RigError
from rig.record import to_json, write_atomic

JOURNAL: Final = "nic.json"
"""File in the bench's state folder."""
JOURNAL_SCHEMA: Final = "rig.nic-journal/1"

_SETTER: Final[dict[str, str]] = {"offloads": "-K", "coalescing": "-C", "eee": "--set-eee"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Change:
    """One setting of one interface that a run changes: from `was` to `now`."""

    interface: str
    group: NicGroup
    setting: str
    was: str
    now: str


def planned(state: NicState, disable: Iterable[NicGroup]) -> list[Change]:
    """What has to change on this interface so that the groups are off; empty when they are."""
    return [
        Change(state.name, group, setting, was, now)
        for group in disable
        for setting, was in _values(state, group).items()
        if (now := _calm(setting, was) if group == "coalescing" else "off") != was
    ]


def commands(changes: Sequence[Change], *, back: bool = False) -> list[list[str]]:
    """The ethtool command lines that make the changes, or take them back; one per interface and group."""
    lines = []
    for (interface, group), some in groupby(changes, lambda change: (change.interface, change.group)):
        words = [word for change in some for word in (change.setting, change.was if back else change.now)]
        lines.append(["ethtool", _SETTER[group], interface, *words])
    return lines


def _values(state: NicState, group: NicGroup) -> dict[str, str]:
    """Setting → value of a group in the words that ethtool takes."""
    if group == "offloads":
        return {name: value.split()[0] for name, value in state.offloads.items() if value}
    if group == "coalescing":
        return state.coalescing
    return {"eee": "on" if state.eee.startswith("enabled") else "off"} if state.eee else {}


def _calm(setting: str, was: str) -> str:
    """A coalescing parameter's value when every frame makes its own interrupt.

    ethtool.h: no delay and at most one frame. A frame count of 0 means that the driver does not count them.
    """
    if setting in ("adaptive-rx", "adaptive-tx"):
        return "off"
    if setting in ("rx-usecs", "tx-usecs"):
        return "0"
    return "1" if setting in ("rx-frames", "tx-frames") and was != "0" else was


class NicSettings:
    """Switches off what a bench wants off and puts it back. The journal holds what is not back yet.

    Not a context manager, since a bench that stays open for many runs switches on its first: an EEE change makes the
    link negotiate anew, which takes seconds.
    """

    def __init__(self, host: Host, journal: Path) -> None:
        self.host = host
        self._journal = journal

    def left_behind(self) -> list[Change]:
        """Changes of the journal that were not taken back, whatever has happened to the interfaces since."""
        return self._read_journal()[1]

    def in_force(self, deadline: Deadline) -> list[Change]:
        """Those of `left_behind` that were made since this boot in this network namespace."""
        place, changes = self._read_journal()
        return changes if changes and place == self._place(deadline) else []

    def apply(self, states: Sequence[NicState], disable: Sequence[NicGroup], deadline: Deadline) -> list[Change]:
        """Switch the groups off on all these NICs; the changes that this took. Proven by reading again.

        Raises BenchError when a setting is fixed, refused, or this user may not change it.
        """
        changes = [change for state in states for change in planned(state, disable)]
        if not changes:
            return []
        for state in states:
            _refuse_fixed(state, disable)
        self._write_journal([*self.left_behind(), *changes], deadline)
        self._run(commands(changes), deadline)
        for state in read_nics(self.host, [state.name for state in states], deadline):
            kept = planned(state, disable)
            if kept:
                raise BenchError(
                    f"{state.name} keeps {', '.join(f'{one.setting} {one.was}' for one in kept)} although ethtool "
                    "reported no error",
                    hint=f"its driver ({state.driver}) refuses; take `{kept[0].group}` out of `nic: {{disable: …}}`",
                )
        return changes

    def restore(self, deadline: Deadline) -> list[Change]:
        """Take back what the journal holds and still has the value that a run gave it; the changes taken back.

        A journal of an earlier boot or of a network namespace that is gone describes settings that went with it.
        Raises BenchError when a change cannot be taken back; the journal then stays.
        """
        changes = self.in_force(deadline)
        back: list[Change] = []
        if changes:
            links = self.host.run(["ip", "-j", "link", "show"], deadline).stdout
            there = segment_interfaces(links, [change.interface for change in changes])
            states = {state.name: state for state in read_nics(self.host, there, deadline)}
            for change in changes:
                state = states.get(change.interface)
                if state is not None and _values(state, change.group).get(change.setting) == change.now:
                    back.append(change)
            self._run(commands(back, back=True), deadline)
        self._journal.unlink(missing_ok=True)
        return back

    def _run(self, lines: Iterable[list[str]], deadline: Deadline) -> None:
        for line in lines:
            answer = self.host.run(line, deadline)
            if answer.returncode != 0:
                by_hand = "sudo " + " ".join(line)
                denied = b"not permitted" in answer.stderr
                who = "this user may not change" if denied else "ethtool refuses to change"
                raise BenchError(
                    f"{who} the settings of {line[2]}",
                    seen=last_line(answer.stderr),
                    hint=f"run it by hand, then the rig finds nothing to change: {by_hand}"
                    if denied
                    else f"see what `{by_hand}` says, or take the group out of `nic: {{disable: …}}`",
                )

    def _place(self, deadline: Deadline) -> dict[str, str]:
        """Boot and network namespace: settings outlive neither. The kernel gives a namespace's number out again, so the
        start time of its first process (proc(5), field 22 of stat) goes with it."""
        ask = (["cat", "/proc/sys/kernel/random/boot_id"], ["readlink", "/proc/self/ns/net"], ["cat", "/proc/1/stat"])
        boot_id, netns, init = (self.host.run(line, deadline).stdout.decode().strip() for line in ask)
        after_name = init.rpartition(")")[2].split()  # empty where proc is mounted with hidepid
        return {"boot_id": boot_id, "netns": netns, "init": "".join(after_name[19:20])}

    def _read_journal(self) -> tuple[Mapping[str, str], list[Change]]:
        try:
            content = json.loads(self._journal.read_bytes())
            return content["place"], [Change(**change) for change in content["changes"]]
        except FileNotFoundError:
            return {}, []
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read (%s); NIC settings of an earlier run may be in force", self._journal, error)
            return {}, []

    def _write_journal(self, changes: Sequence[Change], deadline: Deadline) -> None:
        place = self._place(deadline)
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {"schema": JOURNAL_SCHEMA, "place": place, "changes": [asdict(c) for c in changes]}
        write_atomic(self._journal, to_json(content))


def put_back(host: Callable[[], Host], journal: Path, deadline: Deadline) -> None:
    """`NicSettings.restore` for the end of a session, which must not throw: what fails is warned of and stays noted.

    host: makes the host, which at capture point `jetson` may need a new connection.
    """
    try:
        NicSettings(host(), journal).restore(deadline)
    except RigError as error:
        _log.warning("NIC settings were not put back; the next start tries again. %s", error)


def segment_record(
    settings: NicSettings, named: Iterable[str], disable: Sequence[NicGroup], deadline: Deadline
) -> dict[str, Any]:
    """Switch off what is to be disabled; the state of NICs and governor after that, as run.json keeps it.

    Without ethtool the state is unknown, which is an error only where something is to be disabled.
    """
    record: dict[str, Any] = {"disabled": list(disable), "governors": governors(), "interfaces": {}, "changes": []}
    try:
        states = read_segment(settings.host, named, deadline)
    except InternalError as error:
        if disable or deadline.expired():
            raise
        return record | {"unknown": error.what}
    if settings.apply(states, disable, deadline):
        states = read_nics(settings.host, [state.name for state in states], deadline)
    record["interfaces"] = {state.name: asdict(state) for state in states}
    record["changes"] = [asdict(change) for change in settings.left_behind()]
    return record


def _refuse_fixed(state: NicState, disable: Iterable[NicGroup]) -> None:
    fixed = [name for name, value in state.offloads.items() if value.startswith("on") and "fixed" in value]
    if "offloads" in disable and fixed:
        raise BenchError(
            f"{state.name} cannot switch off {', '.join(fixed)}: fixed by its driver {state.driver or '(unknown)'}",
            hint="use another NIC, or take `offloads` out of `nic: {disable: …}`",
        )
