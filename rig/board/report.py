"""What using the board yields, as data: the flash report, findings for the check `alive`, push mode's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rig.errors import BoardError

FlashMode = Literal["always", "if-changed", "never"]


class BoardSilentError(BoardError):
    """The board did not say what was waited for: no banner, no answer of its boot ROM."""


@dataclass(frozen=True)
class Observation:
    """Something that the check `alive` fails on; docs/record.md says what the kinds are. t_ns: CLOCK_MONOTONIC."""

    kind: Literal["no-boot", "fault", "reboot", "silent"]
    detail: str
    t_ns: int


class BootFailure(Exception):  # noqa: N818 - a finding about the product, not an error of the rig
    """The board did not come up although its flash is proven. Carries the observation; run.py records it as FAIL."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation.detail)
        self.observation = observation


@dataclass(frozen=True)
class Push:
    """Push mode: `count` datagram groups of `tokens` tokens, one every `every_ns`."""

    every_ns: int
    count: int
    tokens: int


@dataclass(frozen=True)
class FlashReport:
    """What flashing did. skipped: the flash already held the image (or mode `never`); verified: the flash was read back
    and equals the image; written and retries: see Programmed; seconds: wall time, boot ROM entry included."""

    mode: FlashMode
    skipped: bool
    verified: bool
    written: int
    erased: str
    retries: int
    seconds: float
    size: int
    sha256: str
    build_id: str | None
