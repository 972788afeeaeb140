"""Which e holds on a bench: that of its calibration while nothing it depends on has changed, else the declared one.

The calibration is one JSON file in the bench's state folder. What was decided stands in run.json, so that judging a
record again needs no bench.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from rig.bench.host import Host
from rig.bench.lease import state_folder
from rig.bench.model import Bench
from rig.capture.points import Point
from rig.capture.settings import capture_settings, changes
from rig.deadline import Deadline
from rig.errors import BenchError, InternalError
from rig.plan.units import format_ns
from rig.record import to_json, write_atomic

if TYPE_CHECKING:
    from rig.bench.calibrate import Calibration

SHOWN = 3
"""Changes that a note lists; all of them stand in the record."""


class UncertaintyRecord(BaseModel):
    """`bench.uncertainty` of run.json. e_ns: what verdicts count with. source: where it comes from. note: the same as a
    sentence, for verdicts. stale: what has changed since the calibration, so that it does not count."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    declared: str
    e_ns: int
    source: str
    note: str
    calibrated_ns: int | None = None
    calibrated_utc: str | None = None
    n: int | None = None
    stale: tuple[str, ...] = ()


def calibration_file(bench: str) -> Path:
    """Where the calibration of a bench is kept."""
    return state_folder(bench) / "calibration.json"


def store(found: Calibration) -> Path:
    """Keep a calibration in place of an older one; the path of its file."""
    path = calibration_file(found.bench)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_json(found.model_dump(mode="json")))
    return path


def load(bench: str) -> Calibration | None:
    """The kept calibration, None when there is none. InternalError for a file that is none of ours."""
    path = calibration_file(bench)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error.strerror}") from error
    from rig.bench.calibrate import Calibration

    try:
        return Calibration.model_validate_json(text)
    except ValidationError as error:
        raise InternalError(
            f"{path} is not a calibration of this version of the rig",
            seen=str(error.errors()[0]["msg"]),
            hint="run `rig bench calibrate` again, or remove the file",
        ) from error


def uncertainty_now(
    bench: Bench, host: Host, point: Point, interfaces: list[str], deadline: Deadline
) -> UncertaintyRecord:
    """The e that counts now. host: where the capture runs; interfaces: the names of those that it captures on.

    A calibration that cannot be read, or compared with the settings of now, does not count; no error is raised for it.
    """
    found = None
    try:
        found = load(bench.bench)
        if found is None:
            return declared(bench)
        stale = tuple(changes(found.settings, capture_settings(host, point, interfaces, deadline)))
    except (BenchError, InternalError) as error:
        if deadline.expired():
            raise
        stale = (error.what,)
    if found is None or stale:
        return declared(bench, found, stale)
    day = found.date_utc[:10]
    return UncertaintyRecord(
        declared=format_ns(bench.uncertainty.declared),
        e_ns=found.e_ns,
        source="calibrated",
        note=f"e = {format_ns(found.e_ns)}, calibrated {day} with {found.n} echoes",
        calibrated_ns=found.e_ns,
        calibrated_utc=found.date_utc,
        n=found.n,
    )


def declared(bench: Bench, found: Calibration | None = None, stale: tuple[str, ...] = ()) -> UncertaintyRecord:
    """The e that the bench file declares. found, stale: the calibration that does not count any more, and why."""
    e_ns = bench.uncertainty.declared
    note = f"e = {format_ns(e_ns)}, declared in the bench file"
    if stale:
        more = f" and {len(stale) - SHOWN} more" if len(stale) > SHOWN else ""
        which = f"the calibration of {found.date_utc[:10]} is stale" if found else "the calibration does not count"
        note += f"; {which}: {'; '.join(stale[:SHOWN])}{more}"
    return UncertaintyRecord(
        declared=format_ns(e_ns),
        e_ns=e_ns,
        source="declared",
        note=note,
        calibrated_ns=found.e_ns if found else None,
        calibrated_utc=found.date_utc if found else None,
        n=found.n if found else None,
        stale=stale,
    )
