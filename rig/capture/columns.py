"""What Wireshark says of a capture's frames, for flows whose plan has a `filter:` or a `field:`, in one tshark pass.

Fields come from tshark's own columns; each display filter is a tap of a small Lua script, which notes the numbers of
the frames that pass. Two passes over the file would double the longest part of judging.

Protocols are known as in Wireshark with its defaults: by port, and by their looks on ports that belong to none, without
which RPC and much else would not be found. Only `data`, a payload that no dissector took, must not be guessed at; where
a plan asks both for `data` and for other things, each gets a pass of its own.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rig.capture.tshark import AGGREGATOR, filter_fault, read_fields
from rig.deadline import Deadline
from rig.errors import CaptureError
from rig.plan.model import Flow
from rig.timing.flows import Dissected
from rig.timing.table import FrameTable

_TAPS = """\
-- Notes which frames pass which display filter: lines "<index of the filter> <frame number>" in the file {output}.
-- The taps are made when dissection begins: while scripts are loaded, fields of other scripts are not known yet.
local taps = Proto("rigtaps", "Taps of the rig")
local made = false
function taps.init()
    if made then return end
    made = true
    local output = assert(io.open({output}, "w"))
    for index, filter in ipairs({filters}) do
        local tap = Listener.new("frame", filter)
        function tap.packet(pinfo) output:write(index, " ", pinfo.number, "\\n") end
        function tap.draw() output:flush() end
    end
end
"""


_DATA = re.compile(r"(?<![\w.-])data(?![\w-])")
"""Names Wireshark's `data` in a filter or field."""


def dissect_columns(path: Path, table: FrameTable, flows: Iterable[Flow], deadline: Deadline) -> Dissected | None:
    """The columns that `flows` ask for, aligned with the rows of `table`; None when they ask for none.

    Raises CaptureError when tshark fails, as it does at a filter or field that it does not know.
    """
    wanted = list(flows)
    filters = sorted({flow.filter for flow in wanted if flow.filter is not None})
    fields = sorted({flow.key.field for flow in wanted if flow.key is not None and flow.key.field is not None})
    if not filters and not fields:
        return None
    row_of = np.full(int(table.number.max(initial=0)) + 1, -1, np.int64)
    row_of[table.number] = np.arange(len(table))
    passes: dict[str, NDArray[np.bool_]] = {}
    values: dict[str, NDArray[np.int64]] = {}
    numbers: dict[str | int, int] = {}
    for raw in (False, True):
        here = [one for one in filters if bool(_DATA.search(one)) == raw]
        read = [one for one in fields if bool(_DATA.search(one)) == raw]
        if here or read:
            rows, notes = _tshark(path, here, read, deadline, heuristics=not raw)
            for index, one in enumerate(here, 1):
                passes[one] = _mask(notes[notes[:, 0] == index, 1], row_of, len(table))
            values |= _numbered(rows, read, row_of, numbers)
    return Dissected(passes, values)


def _tshark(
    path: Path, filters: list[str], fields: list[str], deadline: Deadline, *, heuristics: bool
) -> tuple[list[list[str]], NDArray[np.int64]]:
    """One pass: (frame number and fields of each frame, pairs of a filter's index from 1 and a frame it lets pass)."""
    with tempfile.TemporaryDirectory(prefix="rig-columns-") as folder:
        passed, script = Path(folder, "passed"), Path(folder, "taps.lua")
        options = []
        if filters:
            listed = ", ".join(_quoted(one) for one in filters)
            script.write_text(_TAPS.format(output=_quoted(str(passed)), filters=f"{{{listed}}}"))
            options = ["-X", f"lua_script:{script}"]
        rows = read_fields(
            path, ["frame.number", *fields], deadline, arguments=options, heuristics=heuristics, occurrence="all"
        )
        if filters and not passed.exists():
            raise CaptureError("tshark did not apply the plan's display filters", seen=", ".join(filters))
        text = passed.read_text() if filters else ""
    return rows, np.fromstring(text, np.int64, sep=" ").reshape(-1, 2)


def wireshark_fault(flow: Flow, deadline: Deadline) -> tuple[str, str] | None:
    """(key of the flow, what is wrong with it in tshark's words); None when filter and field are sound."""
    if flow.filter is not None:
        told = filter_fault(flow.filter, deadline)
        if told is not None:
            return "filter", told
    if flow.key is not None and flow.key.field is not None:
        told = filter_fault(flow.key.field, deadline)  # a field alone is a filter: present or not
        if told is not None:
            return "key", told
    return None


def _quoted(text: str) -> str:
    """A Lua string of printable ASCII."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _mask(number: NDArray[np.int64], row_of: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    mask = np.zeros(count, np.bool_)
    row = row_of[number[number < len(row_of)]]
    mask[row[row >= 0]] = True
    return mask


def _numbered(
    rows: list[list[str]],
    fields: list[str],
    row_of: NDArray[np.int64],
    numbers: dict[str | int, int],
) -> dict[str, NDArray[np.int64]]:
    """Each text gets one number in `numbers`, whichever field it stands in; integers count by value, decimal or
    hexadecimal."""
    found: dict[str, list[tuple[int, int]]] = {field: [] for field in fields}
    for number, *told in rows:
        row = row_of[int(number)] if int(number) < len(row_of) else -1
        if row < 0:
            continue
        for field, texts in zip(fields, told, strict=True):
            for text in dict.fromkeys(texts.split(AGGREGATOR)) if texts else ():
                found[field].append((row, numbers.setdefault(_value(text), len(numbers))))
    return {field: np.array(sorted(pairs), np.int64).reshape(-1, 2) for field, pairs in found.items()}


def _value(text: str) -> str | int:
    try:
        return int(text, 0)
    except ValueError:
        return text
