"""The next experiment where the suspicion lies between capture point and board: it depends on where that point is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.triage.case import Case

UNKNOWN = "capture at the board's own port as well, or connect board and Jetson directly: is it gone?"
"""For a capture of which nobody knows where it was taken."""


def at_the_board(case: Case) -> bool:
    """True when nothing but a cable (or what emulates it) lies between capture point and board."""
    return case.capture_point in ("inline", "tap")


def nearer(case: Case) -> str:
    """How to tell the link from the board's driver, given the capture point of the record."""
    point = case.capture_point
    if not point:
        return UNKNOWN
    if not at_the_board(case):
        taken = "on the Jetson" if point == "jetson" else "at the switch's mirror port"
        return f"this capture was taken {taken}: {UNKNOWN}"
    if case.emulated:
        return (
            f"this capture was taken at the board's own port ({_port(case)}), behind which lie only the relay and the "
            "board: run once with nothing imposed on the link; what stays is the board's driver"
        )
    return (
        f"this capture was taken at the board's own port ({_port(case)}), behind which lie only a cable and the board: "
        "exchange the cable, then flash `variant: copy`; what stays with the one and goes with the other is it"
    )


def _port(case: Case) -> str:
    interface = case.info.bench.get("capture", {}).get("interface") if case.info is not None else None
    return f"{case.capture_point}, {interface}" if interface else case.capture_point
