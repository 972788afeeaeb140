"""run.json without its damaged parts, so that whoever looks into it finds the kinds of values that a run writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from rig.record import Phase, RunInfo
from rig.triage.side_files import is_number

_Test = Callable[[Any], bool]


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(is_number(one, int) for one in value.values())


def _interfaces(value: Any) -> bool:
    """The losses of each are counted, or null; `counters` are there with their names."""
    lost = ("dropped", "file_dropped", "dropped_nic")
    return _mappings(value) and all(
        _counts(one.get("counters", {})) and all(one.get(key) is None or is_number(one[key], int) for key in lost)
        for one in value
    )


_PARTS: Final[dict[tuple[str, str], _Test]] = {
    ("bench", "board"): _mapping,
    ("bench", "jetson"): _mapping,
    ("bench", "capture"): _mapping,
    ("bench", "uncertainty"): _mapping,
    ("capture", "interfaces"): _interfaces,
    ("board", "boot"): _mapping,
    ("board", "counters"): _counts,
    ("board", "observations"): _mappings,
    ("jetson", "host"): _mapping,
    ("jetson", "engine"): _mapping,
}


def sound_info(info: RunInfo) -> tuple[RunInfo, list[str]]:
    """`info` without the parts that are of another kind, and a sentence about each; null is no damage."""
    changes: dict[str, Any] = {}
    unread = []
    for (name, part), sound in _PARTS.items():
        section = changes.get(name, getattr(info, name))
        if part in section and not sound(section[part]):
            if section[part] is not None:
                unread.append(f"run.json: `{name}.{part}` is not what a run writes")
            changes[name] = {key: value for key, value in section.items() if key != part}
    phases = [phase for phase in info.phases if _sound_phase(phase)]
    if len(phases) < len(info.phases):
        unread.append(f"run.json: {len(info.phases) - len(phases)} phases are not what a run writes")
    rules = [rule for rule in info.impairment if isinstance(rule, dict)]
    return replace(info, phases=phases, impairment=rules, **changes), unread


def _sound_phase(phase: Phase) -> bool:
    numbers = (phase.start_ns, phase.duration_ns)
    return all(is_number(one, int) for one in numbers) and all(
        isinstance(text, str) for text in (phase.name, phase.outcome, phase.note)
    )
