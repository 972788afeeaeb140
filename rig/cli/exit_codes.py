"""How `rig` ends: 0 everything passed, 1 a check FAILs, 2 the command line, a plan or a bench file is wrong, 3 ERROR,
4 INCONCLUSIVE, 5 nothing but skips, 130 interrupted. The first of FAIL, ERROR, INCONCLUSIVE that occurs decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rig.timing.verdict import Verdict

OK, FAILED, USAGE, ERROR, INCONCLUSIVE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

HELP = """exit codes:
  0 all passed  1 FAIL  2 wrong command line, plan or bench file  3 ERROR (rig or bench)  4 INCONCLUSIVE
  5 nothing but skips  130 interrupted;  the first of FAIL, ERROR, INCONCLUSIVE that occurs decides
"""


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """The exit code of several verdicts, by the order in which they are summed up."""
    from rig.timing.verdict import Verdict, worst

    codes = {
        Verdict.FAIL: FAILED,
        Verdict.ERROR: ERROR,
        Verdict.INCONCLUSIVE: INCONCLUSIVE,
        Verdict.PASS: OK,
        Verdict.SKIP: NOTHING,
    }
    return codes[worst(verdicts)]
