"""Erase units of STM32 flash by product id (AN3155 Get ID), from AN2606's device table and each reference manual.

Numbers are the page or sector codes that Erase and Extended Erase take. Only layouts that do not depend on option
bytes are listed; for any other product id the driver erases the whole flash and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rig.board.flash.flasher import Region
from rig.errors import BoardError

FLASH_BASE = 0x0800_0000


@dataclass(frozen=True)
class Sector:
    """One erase unit: its code, first address and size in bytes."""

    number: int
    address: int
    size: int

    @property
    def end(self) -> int:
        """First address after it."""
        return self.address + self.size


@dataclass(frozen=True)
class FlashMap:
    """The main flash of one product. `sectors` are contiguous and in order of address."""

    name: str
    sectors: tuple[Sector, ...]

    @property
    def start(self) -> int:
        return self.sectors[0].address

    @property
    def end(self) -> int:
        return self.sectors[-1].end

    def covering(self, address: int, size: int) -> tuple[Sector, ...]:
        """The sectors that hold any byte of [address, address + size)."""
        return tuple(s for s in self.sectors if s.address < address + size and s.end > address)


def flash_map(product_id: int | None) -> FlashMap | None:
    """The layout of a product, or None when it is not known here."""
    entry = _PRODUCTS.get(product_id) if product_id is not None else None
    return _build(*entry) if entry else None


def sectors_for(layout: FlashMap, regions: Sequence[Region], keep: Sequence[Region]) -> list[Sector]:
    """The sectors to erase, in order. Raises BoardError for bytes outside of the flash or a sector that must stay."""
    needed: dict[int, Sector] = {}
    for region in regions:
        if region.address < layout.start or region.end > layout.end:
            raise BoardError(
                f"the {region.name} region 0x{region.address:08x} to 0x{region.end - 1:08x} does not fit the flash of "
                f"{layout.name}, 0x{layout.start:08x} to 0x{layout.end - 1:08x}",
                hint="wrong image for this board, or a wrong address in the bench file",
            )
        for sector in layout.covering(region.address, len(region.data)):
            needed[sector.number] = sector
            for kept in keep:
                if kept.name != region.name and sector.address <= kept.address < sector.end:
                    raise BoardError(
                        f"the {region.name} region reaches into sector {sector.number} (0x{sector.address:08x}), "
                        f"which holds the {kept.name} region",
                        hint=f"make it smaller, or move `{kept.name}_address` in the bench file (null: none)",
                    )
    return [needed[number] for number in sorted(needed)]


def _build(name: str, runs: Iterable[tuple[int, int]]) -> FlashMap:
    sectors: list[Sector] = []
    address = FLASH_BASE
    for count, kib in runs:
        for _ in range(count):
            sectors.append(Sector(len(sectors), address, kib << 10))
            address += kib << 10
    return FlashMap(name, tuple(sectors))


# product id: (name, runs of (number of sectors, KiB each)) of the largest flash that shares the id.
_PRODUCTS: dict[int, tuple[str, tuple[tuple[int, int], ...]]] = {
    0x410: ("STM32F10x medium density", ((128, 1),)),
    0x413: ("STM32F40x/41x", ((4, 16), (1, 64), (7, 128))),
    0x414: ("STM32F10x high density", ((256, 2),)),
    0x421: ("STM32F446", ((4, 16), (1, 64), (3, 128))),
    0x423: ("STM32F401xB/C", ((4, 16), (1, 64), (1, 128))),
    0x431: ("STM32F411", ((4, 16), (1, 64), (3, 128))),
    0x433: ("STM32F401xD/E", ((4, 16), (1, 64), (3, 128))),
    0x440: ("STM32F05x/F030x8", ((64, 1),)),
    0x442: ("STM32F09x/F030xC", ((128, 2),)),
    0x448: ("STM32F07x", ((64, 2),)),
    0x449: ("STM32F74x/75x", ((4, 32), (1, 128), (3, 256))),
    0x452: ("STM32F72x/73x", ((4, 16), (1, 64), (3, 128))),
}
