"""How many samples a percentile limit needs before it can be proven at all.

With k of n samples beyond the limit, the limit on the q-quantile is proven at confidence c iff
P[Bin(n, 1-q) <= k] <= 1-c (exact, distribution-free; Clopper-Pearson). The best case is k = 0: q**n <= 1-c.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction


def quantile(key: str) -> Fraction:
    """`p99.9` → Fraction(999, 1000)."""
    return Fraction(key.removeprefix("p")) / 100


def samples_needed(share: Fraction, confidence: Fraction) -> int:
    """The smallest n with share**n <= 1 - confidence, for 0 < share < 1 and 0 <= confidence < 1.

    share: the quantile for an upper bound (`max`), its complement for a lower one (`min`).
    """
    with localcontext() as context:
        context.prec = 60
        base, rest = _decimal(share), _decimal(1 - confidence)
        # The float gives the neighbourhood, the decimals the exact answer.
        count = max(1, math.ceil(math.log(rest) / math.log(base)) - 1)
        while base**count > rest:
            count += 1
        return count


def pairs_needed(confidence: Fraction) -> int:
    """The least number of pairs of runs whose differences, all of one sign, prove one: 2**-n <= 1 - confidence."""
    count = 1
    while Fraction(1, 2**count) > 1 - confidence:
        count += 1
    return count


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
