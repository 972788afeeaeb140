"""Plans and benches that a night leaves out: why, and until when. One YAML file, `quarantine.yaml` by default.

An entry past its date counts no more and is named on the morning page until somebody takes it out: quarantine is a
loan, not a grave.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from rig.errors import PlanError
from rig.plan.base import Model, Name
from rig.plan.explain import build
from rig.plan.load import counted, read_bytes
from rig.plan.yaml_positions import read_document, unique

NAME: Final = "quarantine.yaml"
QUARANTINED: Final = "quarantined"
"""First word of the reason why a job was left out."""


class Entry(Model):
    """What is left out: a plan, a bench, or a plan on one bench."""

    plan: Name | None = None
    bench: Name | None = None
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    until: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    """The first day on which it counts no more, as 2026-12-31."""

    @model_validator(mode="after")
    def _sound(self) -> Entry:
        if self.plan is None and self.bench is None:
            raise ValueError("names neither a plan nor a bench")
        try:
            date.fromisoformat(self.until)
        except ValueError:
            raise ValueError(f"`until: {self.until}` is no day of the calendar") from None
        return self

    def covers(self, plan: str, bench: str) -> bool:
        return self.plan in (None, plan) and self.bench in (None, bench)

    def expired(self, today: date) -> bool:
        return today >= date.fromisoformat(self.until)

    def sentence(self) -> str:
        return f"{QUARANTINED} until {self.until}: {self.reason}"


class Quarantine(Model):
    """The file."""

    quarantine: list[Entry] = Field(default_factory=list)


def load_quarantine(path: Path, *, required: bool = False) -> tuple[Entry, ...]:
    """The entries; none where there is no file and it is not `required`. PlanError holds all faults of the file."""
    if not required and not path.exists():
        return ()
    document = read_document(read_bytes(path, PlanError), str(path))
    faults = list(document.faults)
    found = None
    if document.data is not None:
        found, more, _ = build(Quarantine, document)
        faults += more
    if found is None or faults:
        raise PlanError(f"{path} has {counted(unique(faults))}", faults=unique(faults))
    return tuple(found.quarantine)


def covering(entries: Sequence[Entry], plan: str, bench: str, today: date) -> Entry | None:
    """The entry that keeps `plan` off `bench` today."""
    return next((one for one in entries if one.covers(plan, bench) and not one.expired(today)), None)
