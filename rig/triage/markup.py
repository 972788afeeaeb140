"""Pieces of HTML for the report. Whatever came from outside goes through `escape`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rig.plan.units import format_ns
from rig.terminal import printable
from rig.timing.limits import format_value


def escape(text: object) -> str:
    """Text for HTML, attributes included; control characters become visible."""
    return html.escape("\n".join(map(printable, str(text).split("\n"))), quote=True)


def frame_buttons(frames: Iterable[int]) -> str:
    """One button per frame number: it shows the frame in the plots and copies its display filter."""
    buttons = " ".join(
        f'<button type="button" data-frame="{int(frame)}" title="show it, copy its filter">{int(frame)}</button>'
        for frame in frames
    )
    return f'<span class="frames">{buttons}</span>'


def prose(text: str) -> str:
    """Escaped text; what stands between backticks is set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{escape(part)}</code>" if i % 2 else escape(part) for i, part in enumerate(parts))


def command_line(identity: str, line: str) -> str:
    """A line to copy; `identity` is unique in the page."""
    return (
        f'<div class="command"><pre id="{identity}">{escape(line)}</pre>'
        f'<button type="button" data-copy="{identity}">copy</button></div>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A table; columns in `numbers` are set right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="n"' if i in numbers else "" for i in range(len(row))]
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def value(value_ns: int | None) -> str:
    """A sample, exact; what is unbounded is an ellipsis."""
    return "…" if value_ns is None else format_value(value_ns)


def rounded(ns: int) -> str:
    """Three significant digits are enough for a stage."""
    if not ns:
        return "0 ns"
    digits = len(str(abs(ns)))
    scale = 10 ** max(0, digits - 3)
    return format_ns(round(ns / scale) * scale)
