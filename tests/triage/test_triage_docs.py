"""docs/triage.md lists every cause with its wire picture, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from rig.triage.diagnosis import all_rules

PAGE = Path(__file__).parents[2] / "docs" / "triage.md"


def test_the_table_of_causes_is_that_of_the_rules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|`]+) \| `([a-z-]+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert rows == [(rule.stage, rule.name, rule.title, rule.picture) for rule in all_rules()]
