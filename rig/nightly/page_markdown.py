"""The morning page as Markdown: for mails, chat, and the job summaries of CI systems."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rig.history.table import level
from rig.nightly.morning import Morning, by_reason

_SECTIONS = (
    ("new", "New failures"),
    ("still", "Still failing"),
    ("fixed", "Fixed"),
    ("flaky", "Flaky"),
    ("drifting", "Drifting"),
)


def markdown(morning: Morning) -> str:
    """The page as text."""
    return "\n".join(_lines(morning)) + "\n"


def _lines(morning: Morning) -> Iterator[str]:
    yield f"# {_plain(morning.title)}\n"
    yield f"**{_plain(morning.headline)}**" + (f"; set `{morning.set_id}`" if morning.set_id else "")
    if morning.dead:
        yield "\nNo run was made in this night, so nothing is known about it."
    for name, title in _SECTIONS:
        items = getattr(morning, name)
        if items:
            yield f"\n## {title}\n"
        for item in items:
            yield f"- `{item.name}` on {', '.join(item.benches)}: {_plain(item.sentence)}"
            if item.where:
                yield f"  {_plain(item.where)}"
            for one in item.standings:
                said = one.now.result.reason if one.now.state == "red" else level(one.now)
                yield f"  - {one.key.bench}: {_plain(said)}; record `{one.now.result.folder}`"
    if morning.not_run:
        yield "\n## Not run, and why\n"
        for missing, titles in by_reason(morning.not_run):
            checks = f" ({', '.join(missing.checks)})" if missing.checks else ""
            named = ", ".join(f"`{title}`" for title in titles)
            yield f"- {named}{checks} on {missing.bench}: {_plain(missing.reason)}"
    if morning.again:
        yield "\n## Run more than once\n"
        for again in morning.again:
            yield f"- `{again.title}` on {again.bench}: {', '.join(again.verdicts)}; counts as {again.settled}"
    faulty = {bench: faults for bench, faults in morning.health.items() if faults}
    if faulty:
        yield "\n## Benches out of order\n"
        for bench, faults in sorted(faulty.items()):
            yield f"- {bench}: {_plain('; '.join(faults))}"
    for note in morning.notes:
        yield f"\n{_plain(note)}"
    yield f"\n{morning.green} checks are green."


def _plain(text: str) -> str:
    """Text of others cannot become a heading, a link or HTML."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))
