"""The morning for machines: JUnit, GitLab's code quality report, GitHub's workflow annotations.

JUnit knows failure (a limit is broken) and error (no verdict); a check that nobody could judge is no failure of the
product. Formats: JUnit XML as pytest and Jenkins have it; GitLab "Code Quality report format"; GitHub "Workflow
commands".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from rig.history.series import Standing
from rig.nightly.morning import Item, Morning


def junit(morning: Morning, standings: Iterable[Standing]) -> bytes:
    """One test suite a bench, one case a check; what was not run is an error, quarantine a skip."""
    root = ElementTree.Element("testsuites", name=_xml(morning.title))
    tonight = [one for one in standings if one.now.result.set_id == morning.set_id]
    benches = sorted({one.key.bench for one in tonight} | {one.bench for one in morning.not_run})
    for bench in benches:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(bench))
        for one in tonight:
            if one.key.bench == bench:
                _case(suite, one)
        mine = [one for one in tonight if one.key.bench == bench]
        told = {one.key.name.rpartition("::")[0] for one in mine if one.now.state in ("open", "skip")}
        for missing in morning.not_run:
            if missing.bench != bench or missing.checks:
                continue
            if missing.verdict == "FAIL" or missing.title not in told:
                case = ElementTree.SubElement(suite, "testcase", classname=_xml(missing.title), name="not-run")
                kind = {"FAIL": "failure", "SKIP": "skipped"}.get(missing.verdict, "error")
                ElementTree.SubElement(case, kind, message=_xml(missing.reason))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite)))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ElementTree.Element, one: Standing) -> None:
    title, _, check = one.key.name.rpartition("::")
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(title), name=_xml(check))
    properties = ElementTree.SubElement(case, "properties")
    for name, value in (("verdict", one.now.result.verdict), ("record", one.now.result.folder)):
        ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
    tag = {"red": "failure", "open": "error", "skip": "skipped"}.get(one.now.state)
    if tag is not None:
        message = f"{one.now.result.verdict}: {one.now.result.error or one.now.result.reason}"
        ElementTree.SubElement(case, tag, message=_xml(message))


def code_quality(morning: Morning) -> str:
    """GitLab shows what is new against the target branch: a finding's fingerprint stays while it fails."""
    found = []
    for kind, severity, items in (
        ("fails", "major", (*morning.new, *morning.still)),
        ("is flaky", "minor", morning.flaky),
        ("drifts", "minor", morning.drifting),
    ):
        for item in items:
            where = ", ".join(item.benches)
            found.append(
                {
                    "description": f"{item.name} {kind} on {where}: {item.sentence}",
                    "check_name": item.name,
                    "fingerprint": hashlib.sha256(f"{kind} {item.name} {where}".encode()).hexdigest(),
                    "severity": severity,
                    "location": {"path": _path(item), "lines": {"begin": 1}},
                }
            )
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def github_annotations(morning: Morning) -> Iterator[str]:
    """Lines that a GitHub runner turns into annotations when they are printed."""
    for level, items in (
        ("error", (*morning.new, *morning.still)),
        ("warning", (*morning.flaky, *morning.drifting)),
    ):
        for item in items:
            yield _annotation(level, item.name, f"{', '.join(item.benches)}: {item.sentence}", _path(item))
    for missing in morning.not_run:
        yield _annotation(
            "error" if missing.verdict == "FAIL" else "warning",
            f"{missing.title}: FAIL" if missing.verdict == "FAIL" else f"{missing.title} was not run",
            f"{missing.bench}: {missing.reason}",
            "",
        )


def _annotation(level: str, title: str, message: str, path: str) -> str:
    properties = [f"title={_property(title)}"] + ([f"file={_property(path)}"] if path else [])
    return f"::{level} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    """Line ends and percent signs would end the command, or begin another one."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _path(item: Item) -> str:
    return f"testplans/{item.standings[0].key.plan}.plan.yaml"


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 has no place for."""
    return re.sub("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "?", text)
