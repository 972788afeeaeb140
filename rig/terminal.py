"""Text of boards, Jetsons and foreign records on a terminal: shown, never obeyed."""

from __future__ import annotations


def printable(line: str) -> str:
    """One line in which what does not print is visible: an escape becomes `\\x1b`, a line feed `\\x0a`."""
    return line if line.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
