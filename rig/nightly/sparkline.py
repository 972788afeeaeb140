"""A check's last nights as a small SVG: value over nights with the limit, or a coloured mark a night where nothing is
measured. Drawn by hand: no script, no font, nothing loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from rig.history.series import Settled
from rig.history.table import level, when

NIGHTS: Final = 30
WIDTH, HEIGHT, EDGE = 180, 36, 4


def sparkline(settled: Sequence[Settled], label: str) -> str:
    """`<svg>` of the last NIGHTS sets, oldest left. label: for those who cannot see it."""
    shown = list(settled[-NIGHTS:])
    step = (WIDTH - 2 * EDGE) / max(1, NIGHTS - 1)
    first = WIDTH - EDGE - step * (len(shown) - 1)
    xs = [first + step * index for index in range(len(shown))]
    measured = [one.result.value for one in shown if one.result.value is not None and one.result.bound is not None]
    marks: list[str] = []
    ys: list[float | None] = [HEIGHT / 2] * len(shown)
    if measured:
        bound = next(one.result.bound for one in reversed(shown) if one.result.bound is not None)
        low, high = min(0, *measured), max(bound, *measured)
        # A limit far above the values would flatten them to a line: then it is left out and the values fill the room.
        near = bound <= 4 * max(measured)
        if not near:
            low, high = min(measured), max(measured)
        scale = (HEIGHT - 2 * EDGE) / ((high - low) or 1)
        values = [one.result.value for one in shown]
        ys = [None if value is None else HEIGHT - EDGE - (value - low) * scale for value in values]
        if near:
            at = HEIGHT - EDGE - (bound - low) * scale
            marks.append(f'<line class="limit" x1="0" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}"/>')
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True) if y is not None)
        marks.append(f'<polyline class="line" points="{points}"/>')
    for one, x, y in zip(shown, xs, ys, strict=True):
        said = escape(f"{when(one)} {one.result.verdict} {level(one)}")
        place = HEIGHT - EDGE if y is None or one.state in ("open", "skip") else y
        radius = 2.6 if one.state != "green" or not measured else 1.6
        colour = "mixed" if one.mixed else one.state
        marks.append(
            f'<circle class="{colour}" cx="{x:.1f}" cy="{place:.1f}" r="{radius}"><title>{said}</title></circle>'
        )
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(marks)}</svg>'
    )
