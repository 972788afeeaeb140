"""What was used: versions, builds and settings of a record as flat text, for the report and for comparing two runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rig.triage.headline import imposed

if TYPE_CHECKING:
    from rig.triage.case import Case


def facts_of(case: Case) -> dict[str, str]:
    """Name → value, in a fixed order; only what is known."""
    info = case.info
    found: dict[str, Any] = {"capture file": case.capture.name, "frames": len(case.table)}
    if info is None:
        return {name: str(value) for name, value in found.items()}
    firmware, boot, engine = info.firmware, info.board.get("boot", {}), info.jetson.get("engine", {})
    host, controller, bench = info.jetson.get("host", {}), info.controller, info.bench
    uncertainty = bench.get("uncertainty", {})
    found |= {
        "run": info.run_id,
        "started": info.started_utc,
        "plan": f"{info.plan_name}" + (f"[{info.point}]" if info.point else "") + f" ({info.plan_file})",
        "plan checksum": info.plan_sha256[:16],
        "bench": bench.get("bench"),
        "bench profile": bench.get("profile"),
        "capture point": bench.get("capture", {}).get("point"),
        "uncertainty e": uncertainty.get("declared"),
        "uncertainty from": uncertainty.get("note"),
        "firmware variant": firmware.get("variant"),
        "firmware file": firmware.get("file"),
        "firmware SHA-256": str(firmware.get("sha256", ""))[:16],
        "firmware build id": firmware.get("build_id"),
        "lwIP": boot.get("lwip"),
        "NPU backend": boot.get("npu"),
        "engine": f"{engine.get('engine', '')} {engine.get('engine_version', '')}".strip(),
        "provider": engine.get("provider"),
        "model SHA-256": str(engine.get("model_sha256", ""))[:16],
        "JetPack": host.get("l4t"),
        "Jetson power mode": host.get("governor"),
        "controller": controller.get("version"),
        "controller commit": str(controller.get("commit") or "")[:12] + (" (dirty)" if controller.get("dirty") else ""),
        "recorder": info.capture.get("version"),
        "stamps": info.capture.get("stamps"),
    }
    found |= {f"tool {name}": value for name, value in sorted(info.tools.items())}
    for interface, settings in sorted(info.nic.items()):
        found |= {f"NIC {interface} {name}": value for name, value in _flat(settings)}
    found["imposed by the plan"] = imposed(case)
    return {name: str(value) for name, value in found.items() if value not in (None, "", {}, [])}


def reproduce_lines(case: Case) -> list[str]:
    """Shell lines that run and judge the same again; records and captures by whole paths, plans as they were named."""
    lines, path = [], str(case.path.resolve())
    if case.info is not None:
        parts = ["rig", "run", case.info.plan_file]
        if case.info.point:
            parts += ["--point", case.info.point]
        if case.info.firmware.get("variant") is None and case.info.firmware.get("file"):
            parts += ["--firmware", str(case.info.firmware["file"])]
        lines += [shlex.join(parts), shlex.join(["rig", "judge", path])]
    lines.append(shlex.join(["rig", "triage", path]))
    return lines


def _flat(settings: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(settings, Mapping):
        return [(prefix.strip(), settings)] if not isinstance(settings, list) else []
    found = []
    for name, value in sorted(settings.items()):
        found += _flat(value, f"{prefix}{name} ")
    return found
