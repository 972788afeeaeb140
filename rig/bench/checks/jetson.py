"""The Jetson: key, SSH with pinned host key, lease, engine, models, disk and clocks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rig.bench.checks import Finding, Site, fail, failure, listed, ok, warn
from rig.bench.host import LocalHost
from rig.bench.model import Jetson
from rig.errors import JetsonError, RigError

LEAST_DISK: Final = 64 << 20
"""Bytes for runner and events of one run."""


def ssh_key(site: Site) -> Finding:
    from rig.jetson.keys import load_private_key

    assert site.bench is not None
    name = site.bench.jetson.key
    if name is None:
        if "SSH_AUTH_SOCK" not in os.environ:
            return judge_agent(None)
        listing = LocalHost().run(["ssh-add", "-l"], site.deadline)
        return judge_agent(listing.stdout.decode() if listing.returncode == 0 else "")
    try:
        load_private_key(name)
    except RigError as error:
        return failure(error)
    return ok(f"{Path(name).expanduser()}, readable by its owner only")


def judge_agent(listing: str | None) -> Finding:
    """listing: `ssh-add -l`, empty when the agent has no key, None when there is no agent."""
    if listing is None:
        return fail("no key in the bench file and no SSH agent", "eval $(ssh-agent) && ssh-add, or set jetson.key")
    if not listing:
        return fail("no key in the bench file and none in the SSH agent", "ssh-add, or set jetson.key")
    return ok(f"{len(listing.splitlines())} in the SSH agent")


def describe_session(jetson: Jetson) -> Finding:
    """For a connection that stands: reached, host key compared with the pin, logged in."""
    from rig.jetson.keys import parse_pin

    pin = parse_pin(jetson.host_key).fingerprint
    return ok(f"{jetson.user}@{jetson.host}:{jetson.port} logs in, host key as pinned ({pin})")


def lease(site: Site) -> Finding:
    from rig.jetson.runs import sweep

    assert site.session is not None
    try:
        swept = sweep(site.session, site.deadline)
    except JetsonError as error:
        return failure(error)
    return ok("free" + (f"; removed what {len(swept.removed)} dead runs had left" if swept.removed else ""))


def engine(site: Site) -> Finding:
    state = _state(site)
    return state if isinstance(state, Finding) else judge_engine(state, hardware=site.file.profile == "hardware")


def judge_engine(state: Mapping[str, Any], *, hardware: bool) -> Finding:
    """state: `host_state`. A Jetson whose ONNX Runtime has no GPU provider would silently infer on its CPU."""
    version = state.get("onnxruntime")
    if not version:
        problem = state.get("onnxruntime_error") or "not installed"
        return fail(
            f"no onnxruntime in Python {state.get('python')}: {problem}",
            "install it there, or name the interpreter that has it: jetson.python",
        )
    providers: Sequence[str] = state.get("providers") or []
    found = f"onnxruntime {version} ({', '.join(providers)})"
    if hardware and not {"CUDAExecutionProvider", "TensorrtExecutionProvider"} & set(providers):
        return warn(f"{found}: CPU only", "install the onnxruntime-gpu wheel for this JetPack from NVIDIA's index")
    return ok(found)


def models(site: Site) -> Finding:
    assert site.bench is not None
    assert site.session is not None
    folder = site.bench.jetson.model_dir
    try:
        done = site.session.run(["ls", "-1", "--", folder.removeprefix("~/")], site.deadline)
    except JetsonError as error:
        return failure(error)
    names = done.stdout.decode("utf-8", "replace").split("\n") if done.status == 0 else []
    return judge_models(folder, [name.removesuffix(".onnx") for name in names if name.endswith(".onnx")])


def judge_models(folder: str, names: Sequence[str]) -> Finding:
    if not names:
        return warn(f"no model (*.onnx) in {folder} on the Jetson", "copy one there; only plans without decoding run")
    return ok(f"{listed(names)} in {folder}")


def disk(site: Site) -> Finding:
    state = _state(site)
    return state if isinstance(state, Finding) else judge_disk(int(state.get("disk_free_bytes", 0)))


def judge_disk(free: int) -> Finding:
    found = f"{free / (1 << 30):.1f} GiB free"
    return fail(found, "on the Jetson: df -h, and make room in ~/.rig") if free < LEAST_DISK else ok(found)


def clocks(site: Site) -> Finding:
    state = _state(site)
    return state if isinstance(state, Finding) else judge_clocks(state)


def judge_clocks(state: Mapping[str, Any]) -> Finding:
    """Governor, and cooling devices at work: a throttled Jetson voids timing."""
    hot = [name for name, level in (state.get("cooling") or {}).items() if _throttles(name, level)]
    if hot:
        return warn(f"throttled now by {listed(hot)}", "let it cool, check fan and power mode (sudo nvpmodel -q)")
    over = [path for path, count in (state.get("over_current") or {}).items() if str(count or "0").strip() != "0"]
    if over:
        return warn("over-current events since its start", "check the power supply; a reboot clears the counters")
    governor = state.get("governor")
    if governor not in (None, "performance"):
        return warn(f"governor {governor}: clocks follow the load", "on the Jetson: sudo jetson_clocks")
    return ok(f"governor {governor}, nothing throttles" if governor else "no clock scaling to be seen")


def _throttles(name: str, level: Any) -> bool:
    """Fans are cooling devices too, and at work on a healthy machine."""
    return "fan" not in name.lower() and str(level or "0").strip() not in ("0", "")


def _state(site: Site) -> Mapping[str, Any] | Finding:
    from rig.jetson.runs import host_state

    assert site.session is not None
    if site.jetson_state is None:
        try:
            site.jetson_state = host_state(site.session, site.deadline)
        except JetsonError as error:
            return failure(error)
    return site.jetson_state
