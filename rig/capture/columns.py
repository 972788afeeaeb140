"""What Wireshark says of a capture's frames, for flows whose plan has a `filter:` or a `field:`, in one tshark pass.

Fields come from tshark's own columns; each display filter is a tap of a small Lua script, which notes the numbers of
the frames that pass. Two passes over the file would double the longest part of judging.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rig.capture.tshark import filter_fault, read_fields
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


def dissect_columns(path: Path, table: FrameTable, flows: Iterable[Flow], deadline: Deadline) -> Dissected | None:
    """The columns that `flows` ask for, aligned with the rows of `table`; None when they ask for none.

    Raises CaptureError when tshark fails, as it does at a filter or field that it does not know.
    """
    wanted = list(flows)
    filters = sorted({flow.filter for flow in wanted if flow.filter is not None})
    fields = sorted({flow.key.field for flow in wanted if flow.key is not None and flow.key.field is not None})
    if not filters and not fields:
        return None
    with tempfile.TemporaryDirectory(prefix="rig-columns-") as folder:
        passed, script = Path(folder, "passed"), Path(folder, "taps.lua")
        options = []
        if filters:
            listed = ", ".join(_quoted(one) for one in filters)
            script.write_text(_TAPS.format(output=_quoted(str(passed)), filters=f"{{{listed}}}"))
            options = ["-X", f"lua_script:{script}"]
        rows = read_fields(path, ["frame.number", *fields], deadline, arguments=options)
        if filters and not passed.exists():
            raise CaptureError("tshark did not apply the plan's display filters", seen=", ".join(filters))
        notes = (
            np.fromstring(passed.read_text(), np.int64, sep=" ").reshape(-1, 2) if filters else np.empty((0, 2), int)
        )
    row_of = np.full(int(table.number.max(initial=0)) + 1, -1, np.int64)
    row_of[table.number] = np.arange(len(table))
    return Dissected(
        passes={one: _mask(notes[notes[:, 0] == index, 1], row_of, len(table)) for index, one in enumerate(filters, 1)},
        fields=_numbered(rows, fields, row_of, len(table)),
    )


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
    rows: list[list[str]], fields: list[str], row_of: NDArray[np.int64], count: int
) -> dict[str, NDArray[np.int64]]:
    """Each text gets one number, whichever field it stands in; integers count by value, decimal or hexadecimal."""
    numbers: dict[str | int, int] = {}
    columns = {field: np.full(count, -1, np.int64) for field in fields}
    for number, *texts in rows:
        row = int(number)
        if row >= len(row_of) or row_of[row] < 0:
            continue
        for field, text in zip(fields, texts, strict=True):
            if text:
                columns[field][row_of[row]] = numbers.setdefault(_value(text), len(numbers))
    return columns


def _value(text: str) -> str | int:
    try:
        return int(text, 0)
    except ValueError:
        return text
