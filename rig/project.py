"""Where the files of this checkout lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_BENCH = ROOT / "benches" / "emulated.yaml"
FIRMWARE = ROOT / "firmware" / "build"
"""Images: boot ROM and variants."""
