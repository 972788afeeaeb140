"""FAULT lines of a Cortex-M: the manual's bits, the address when it is valid, and the line to resolve them."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import change_run, make_record
from wire_captures import talk

from rig.cli import main
from rig.triage.armv8m import read_fault
from rig.triage.case import case_of_record
from rig.triage.diagnosis import diagnose
from rig.triage.report import render_report

LINE = "FAULT HardFault pc=0x6000016a lr=0x6000127d cfsr=0x00008200 hfsr=0x40000000 bfar=0x08000000"


@pytest.mark.parametrize(
    ("cfsr", "more", "sentence"),
    [
        (0x0000_8200, "bfar=0x08000000", "PRECISERR: bus error on a data access, at address 0x08000000"),
        (0x0000_0200, "bfar=0x08000000", "PRECISERR: bus error on a data access"),
        (0x0000_0082, "mmfar=0x00000004", "DACCVIOL: data access to a forbidden address, at address 0x00000004"),
        (0x0000_0400, "bfar=0x00000000", "IMPRECISERR: bus error on an earlier write; the pc is past it"),
        (0x0010_0000, "", "STKOF: stack overflow"),
        (0x0200_0000, "bfar=0x08000000", "DIVBYZERO: division by zero"),
        (0x0300_0000, "", "UNALIGNED: unaligned access; DIVBYZERO: division by zero"),
        (0, "hfsr=0x00000002", "VECTTBL: the vector table could not be read"),
        (0, "", ""),
    ],
)
def test_status_registers_are_read_as_the_manual_says(cfsr: int, more: str, sentence: str) -> None:
    dump = read_fault(f"FAULT HardFault pc=0x60000000 lr=0x60000001 cfsr=0x{cfsr:08x} {more}")
    assert dump is not None
    assert dump.sentence == sentence


def test_addresses_to_resolve_are_the_pc_and_the_call_before_the_return_address() -> None:
    dump = read_fault(LINE)
    assert dump is not None
    assert dump.addresses == (0x6000_016A, 0x6000_127A)
    in_handler = read_fault("FAULT HardFault pc=0x100 lr=0xfffffff9")
    assert in_handler is not None
    assert in_handler.addresses == (0x100,)


@pytest.mark.parametrize("line", ["FAULT assert heap.c:12 free", "", "pc=", "FAULT HardFault pc=0xzz"])
def test_a_line_without_registers_is_no_dump(line: str) -> None:
    assert read_fault(line) is None


def crashed(folder: Path, line: str) -> Path:
    fault = {"kind": "fault", "detail": line, "t_ns": 1}
    return make_record(folder, make=lambda wire: talk(wire, 200), observations=[fault])


def test_the_next_step_is_a_line_to_copy_with_the_real_addresses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = case_of_record(crashed(tmp_path / "001", LINE))
    first = diagnose(case).first
    assert first is not None
    assert first.name == "board-crash"
    command = "arm-none-eabi-addr2line -f -e app.elf 0x6000016a 0x6000127a"
    assert first.experiment.endswith(f"app.elf being the ELF file of build aa11: `{command}`")
    page = render_report(case, diagnose(case))
    assert f'<pre id="next-board-crash">{command}</pre>' in page
    assert page.count(command) == 1
    main(["triage", str(case.path)])
    assert f"      {command}" in capsys.readouterr().out.splitlines()
    assert "PRECISERR: bus error on a data access, at address 0x08000000" in page


def test_the_elf_of_the_very_build_is_named_by_its_path(tmp_path: Path) -> None:
    from rig.project import FIRMWARE

    elf = FIRMWARE / "zero_copy" / "app.elf"
    if not elf.is_file():
        pytest.skip("the firmware is not built (make -C firmware)")
    from rig.board.image import load_image

    record = crashed(tmp_path / "001", LINE)
    firmware = case_of_record(record).info.firmware  # type: ignore[union-attr]
    change_run(record, firmware={**firmware, "build_id": load_image(elf, 0).build_id})
    first = diagnose(case_of_record(record)).first
    assert first is not None
    assert f"-e {elf} 0x6000016a" in first.experiment


def test_an_assertion_leads_to_its_line_in_the_source(tmp_path: Path) -> None:
    first = diagnose(case_of_record(crashed(tmp_path / "001", "FAULT assert heap.c:12 free twice"))).first
    assert first is not None
    assert first.experiment.startswith("read the source at heap.c:12")
