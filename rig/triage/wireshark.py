"""A Wireshark configuration folder with a profile `rig`: columns, colours, and no guessing of UDP payloads.

The profile is a folder of its own (WIRESHARK_CONFIG_DIR), so that whatever the reader has set up at home changes
nothing. Wireshark's file formats: User's Guide, appendix B.3.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Final

PROFILE: Final = "rig"

_COLUMNS: Final = (
    ("No.", "%m"),
    ("Time", "%t"),
    ("Source", "%s"),
    ("Destination", "%d"),
    ("Type", "%Cus:token.type:0:R"),
    ("Request", "%Cus:token.request_id:0:R"),
    ("Sequence", "%Cus:token.sequence:0:R"),
    ("Response time", "%Cus:token.response_time:0:R"),
    ("Length", "%L"),
    ("Verdict", "%Cus:frame.comment:0:R"),
    ("Info", "%i"),
)
_COLOURS: Final = (
    ("violation", 'frame.comment contains "FAIL"', (65535, 55000, 55000), (40000, 0, 0)),
    ("evidence", 'frame.comment contains "CAUSE"', (65535, 61000, 49000), (30000, 16000, 0)),
    ("sentinel", "token.type == 5", (57000, 61000, 65535), (0, 12000, 32000)),
    ("board error", "token.type == 4", (65535, 55000, 65535), (32000, 0, 32000)),
    ("ICMP error", "icmp.type == 3 || icmp.type == 11", (65535, 60000, 40000), (0, 0, 0)),
    ("ARP", "arp", (64000, 61500, 54000), (12000, 12000, 12000)),
    ("answer", "token.type == 2", (59000, 65535, 59000), (0, 20000, 0)),
)


def write_profile(folder: Path) -> Path:
    """Write the configuration folder, the dissector beside it; returns the dissector's path."""
    from rig.capture.tshark import DISSECTOR, UDP_HEURISTICS

    profile = folder / "profiles" / PROFILE
    profile.mkdir(parents=True, exist_ok=True)
    columns = ",\n\t".join(f'"{title}", "{code}"' for title, code in _COLUMNS)
    (profile / "preferences").write_text(
        f"gui.column.format: \n\t{columns}\n"
        "ip.defragment: FALSE\n"
        "nameres.network_name: FALSE\n"
        "nameres.transport_name: FALSE\n"
        "udp.check_checksum: FALSE\n"
        "gui.packet_list_show_related: TRUE\n",
        encoding="utf-8",
    )
    (profile / "colorfilters").write_text(
        "".join(
            f"@{name}@{rule}@[{','.join(map(str, back))}][{','.join(map(str, fore))}]\n"
            for name, rule, back, fore in _COLOURS
        ),
        encoding="utf-8",
    )
    (profile / "heuristic_protos").write_text("".join(f"{name},0\n" for name in UDP_HEURISTICS.split()))
    (profile / "recent").write_text("gui.time_format: RELATIVE\ngui.time_precision: NSEC\n", encoding="utf-8")
    dissector = folder / "token.lua"
    shutil.copyfile(DISSECTOR, dissector)
    return dissector


def open_command(folder: Path, capture: Path, frame: int | None = None, program: str = "wireshark") -> str:
    """The shell line that opens `capture` with the profile of `folder`, at `frame`."""
    parts = [program, "-C", PROFILE, "-X", f"lua_script:{folder / 'token.lua'}", "-r", str(capture)]
    if frame:
        parts += ["-g", str(frame)]
    return f"WIRESHARK_CONFIG_DIR={shlex.quote(str(folder))} {shlex.join(parts)}"
