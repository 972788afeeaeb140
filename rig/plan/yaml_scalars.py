"""What a plain YAML scalar means: the YAML 1.2 core schema, and where YAML 1.1 readers would see something else.

Source: yaml.org/spec/1.2.2 section 10.3.2; yaml.org/type (1.1: bool, int, float).
"""

from __future__ import annotations

import re
from typing import Any

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})|0x[0-9a-fA-F]{1,32}")
_DECIMAL = re.compile(
    r"[-+]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?[eE][-+]?[0-9]{1,2})"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_BOOLEAN_1_1 = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_SEXAGESIMAL_1_1 = re.compile(r"[-+]?(?:[1-9][0-9_]*(?::[0-5]?[0-9])+|[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_OTHER_NUMBER_1_1 = re.compile(
    r"[-+]?(?:0b[01_]+|0o[0-7]+|0x[0-9a-fA-F_]*_[0-9a-fA-F_]*|[1-9][0-9]*_[0-9_]*)|[-+]0x[0-9a-fA-F]+"
)


def resolve(text: str) -> Any:
    """The value of a plain scalar by YAML 1.2: None, bool, int, float or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] == "0x" else 10)
    return float(text) if _DECIMAL.fullmatch(text) else text


def other_reading(text: str) -> tuple[str, str] | None:
    """What a YAML 1.1 reader would make of `text`, and what to write instead; None where both agree."""
    if _BOOLEAN_1_1.fullmatch(text):
        word = "true" if text.lower() in ("yes", "on") else "false"
        return "means a boolean to some YAML readers and text to others", f"write `{word}`, or quote it"
    if _SEXAGESIMAL_1_1.fullmatch(text):
        return "is a number in base 60 to some YAML readers", "quote it"
    if _LEADING_ZERO.fullmatch(text):
        return "is octal to some YAML readers and decimal to others", "drop the leading zero, or quote it"
    if _OTHER_NUMBER_1_1.fullmatch(text):
        return "is a number to some YAML readers and text to others", "write it in plain decimal, or quote it"
    return None
