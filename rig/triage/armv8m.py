"""What a FAULT line of a Cortex-M says: which fault, at which address, and where the program was.

Armv8-M Architecture Reference Manual (DDI 0553): CFSR joins MMFSR (bits 7 to 0), BFSR (15 to 8) and UFSR (31 to 16);
MMFAR and BFAR hold an address only while MMARVALID and BFARVALID are set; HFSR tells an escalated fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CFSR: Final = {
    0: ("IACCVIOL", "instruction fetch from a forbidden address"),
    1: ("DACCVIOL", "data access to a forbidden address"),
    3: ("MUNSTKERR", "memory fault on return from an exception"),
    4: ("MSTKERR", "memory fault on entry to an exception: is the stack too small?"),
    5: ("MLSPERR", "memory fault while floating-point state was saved"),
    8: ("IBUSERR", "bus error on an instruction fetch"),
    9: ("PRECISERR", "bus error on a data access"),
    10: ("IMPRECISERR", "bus error on an earlier write; the pc is past it"),
    11: ("UNSTKERR", "bus error on return from an exception"),
    12: ("STKERR", "bus error on entry to an exception: is the stack too small?"),
    13: ("LSPERR", "bus error while floating-point state was saved"),
    16: ("UNDEFINSTR", "undefined instruction"),
    17: ("INVSTATE", "jump to an address without the Thumb bit"),
    18: ("INVPC", "bad return from an exception"),
    19: ("NOCP", "coprocessor or floating-point unit not enabled"),
    20: ("STKOF", "stack overflow"),
    24: ("UNALIGNED", "unaligned access"),
    25: ("DIVBYZERO", "division by zero"),
}
_HFSR: Final = {1: ("VECTTBL", "the vector table could not be read")}
_MMARVALID, _BFARVALID = 7, 15
_REGISTER = re.compile(r"\b(pc|lr|cfsr|hfsr|bfar|mmfar)=(?:0x)?([0-9a-fA-F]{1,8})\b", re.IGNORECASE)


@dataclass(frozen=True)
class FaultDump:
    """The registers of one FAULT line, as far as it names them."""

    registers: dict[str, int]

    @property
    def sentence(self) -> str:
        """`PRECISERR: bus error on a data access, at address 0x08000000`; empty without a CFSR that says anything."""
        return "; ".join(self._causes())

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where to look in the program: pc, and the call before the return address lr (Thumb bit off)."""
        pc, lr = self.registers.get("pc"), self.registers.get("lr")
        # EXC_RETURN values are no addresses.
        call = (lr & ~1) - 2 if lr is not None and 2 < lr < 0xF0000000 else None
        return tuple(one for one in (pc, call) if one is not None)

    def _causes(self) -> Iterator[str]:
        cfsr = self.registers.get("cfsr", 0)
        for bit, (name, words) in _CFSR.items():
            if cfsr >> bit & 1:
                valid, register = (_MMARVALID, "mmfar") if bit < 8 else (_BFARVALID, "bfar")
                address = self.registers.get(register)
                known = bit < 16 and cfsr >> valid & 1 and address is not None
                yield f"{name}: {words}" + (f", at address 0x{address:08x}" if known else "")
        for bit, (name, words) in _HFSR.items():
            if self.registers.get("hfsr", 0) >> bit & 1:
                yield f"{name}: {words}"


def read_fault(line: str) -> FaultDump | None:
    """The registers of a line such as `FAULT HardFault pc=0x… lr=0x… cfsr=0x…`; None without a pc."""
    found = {name.lower(): int(value, 16) for name, value in _REGISTER.findall(line)}
    return FaultDump(found) if "pc" in found else None
