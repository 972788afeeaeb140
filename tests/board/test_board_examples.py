"""The example benches load as they stand, and every driver's page says what it has been tried on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rig.bench.load import hardware_bench, load_bench
from rig.bench.model import Bench
from rig.board.flash.flasher import DRIVERS as FLASHERS
from rig.board.flash.flasher import can_read
from rig.board.lines import DRIVERS as LINES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "benches").glob("example-*.yaml"))
PAGES = sorted((ROOT / "docs" / "drivers").glob("*.md"))


def example(name: str) -> Bench:
    return hardware_bench(load_bench(ROOT / "benches" / f"example-{name}.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_loads_and_says_that_it_is_untried(path: Path) -> None:
    bench = hardware_bench(load_bench(path))
    assert path.stem == f"example-{bench.bench}"
    comment = re.sub(r"\n# ?", " ", path.read_text())
    assert "nothing in it has been tried on hardware" in comment


def test_examples_show_each_kind_of_bench() -> None:
    assert {path.stem.removeprefix("example-") for path in EXAMPLES} >= {
        "stm32-an3155",
        "vendor-programmer",
        "nxp-blhost",
        "rfc2217",
        "mirror-port",
        "tap",
    }
    stm32, vendor, nxp = example("stm32-an3155").board, example("vendor-programmer").board, example("nxp-blhost").board
    assert (stm32.flash.driver, stm32.reset.driver, stm32.power.driver) == ("an3155", "rts", "command")
    assert vendor.banner is not None
    assert vendor.flash.identity_address is None
    assert can_read(vendor.flash)
    assert nxp.flash.command is not None
    assert not any("{address}" in argument for argument in nxp.flash.command.command)
    assert example("rfc2217").board.serial.port.startswith("rfc2217://")
    assert example("mirror-port").capture.point == "mirror"
    assert example("tap").capture.interfaces == ("enp3s0f0", "enp3s0f1")


def test_every_driver_has_a_page_that_says_what_it_was_tried_on() -> None:
    pages = {path.name: path.read_text() for path in PAGES}
    for name in FLASHERS:
        assert f"# Flash driver `{name}`" in pages[f"{name}.md"]
    for name in LINES:
        assert f"`{name}`" in pages["lines.md"]
    for name, text in pages.items():
        tried = text.partition("## Tried on")[2]
        assert re.search(r"[Hh]ardware.*\*\*untried\*\*|\*\*untried\*\*.*[Hh]ardware", tried, re.DOTALL), name
