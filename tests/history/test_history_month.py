"""The simulated month: what history and the morning pages say about it, and that they say nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import simulated_month as month

from rig.cli import main
from rig.history.index import index_path, update
from rig.history.questions import standings
from rig.history.schema import connect
from rig.history.series import Standing
from rig.history.table import remark
from rig.nightly.command import morning_of
from rig.nightly.morning import Morning

DRIFTING = {f"{plan}::answer-time" for plan in month.PLANS}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("month")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # 3,000 of them take a minute on a busy disk
        month.write_month(folder)
    update(folder)
    return folder


def morning(records: Path, night: int) -> Morning:
    directory = records / month.set_of(night)
    until = None if directory.exists() else month.begin(night + 1)
    return morning_of(records, directory if directory.exists() else None, until)[0]


def told(items) -> dict[str, tuple[str, ...]]:
    return {item.name: item.benches for item in items}


def test_night_12_has_the_regression_the_flake_and_the_drift_and_nothing_else(records: Path) -> None:
    page = morning(records, 12)
    assert told(page.new) == {"zero-copy-latency::answer-time": month.BENCHES}
    assert "follows firmware 2bad2cafe000 → 3bad3cafe000" in page.new[0].sentence
    assert "since 2026-01-12" in page.new[0].sentence
    assert "all 3 benches" in page.new[0].where
    assert told(page.flaky) == {"jitter-under-load::in-order": ("lab-2",)}
    # What fails is named once, as failing.
    assert told(page.drifting) == dict.fromkeys(DRIFTING - {"zero-copy-latency::answer-time"}, ("lab-3",))
    assert "lab-1, lab-2" in page.drifting[0].where
    assert (page.still, page.fixed, page.not_run, page.dead) == ((), (), (), False)


def test_night_13_is_dead(records: Path) -> None:
    page = morning(records, 13)
    assert page.dead
    assert page.headline == "no run was made"
    assert (page.new, page.still, page.fixed, page.flaky, page.drifting) == ((), (), (), (), ())
    assert {one.bench for one in page.not_run} == set(month.BENCHES)
    assert all("last result 2026-01-12" in one.reason for one in page.not_run)


def test_night_14_says_that_the_regression_goes_on(records: Path) -> None:
    page = morning(records, 14)
    assert told(page.still) == {"zero-copy-latency::answer-time": month.BENCHES}
    assert "failing since 2026-01-12" in page.still[0].sentence
    assert told(page.flaky) == {"jitter-under-load::in-order": ("lab-2",)}
    assert told(page.drifting) == dict.fromkeys(DRIFTING - {"zero-copy-latency::answer-time"}, ("lab-3",))
    assert (page.new, page.fixed, page.not_run, page.dead) == ((), (), (), False)


def test_night_20_sees_it_repaired(records: Path) -> None:
    page = morning(records, 20)
    assert told(page.fixed) == {"zero-copy-latency::answer-time": month.BENCHES}
    assert (page.new, page.still) == ((), ())


def test_no_night_after_the_first_week_names_anything_that_did_not_happen(records: Path) -> None:
    for night in range(8, month.NIGHTS + 1):
        if night == month.DEAD:
            continue
        page = morning(records, night)
        items = [*page.new, *page.still, *page.fixed]
        named = {(item.name, bench) for item in items for bench in item.benches}
        assert named <= {("zero-copy-latency::answer-time", bench) for bench in month.BENCHES}, night
        assert set(told(page.flaky)) <= {"jitter-under-load::in-order"}, night
        assert all(item.benches == ("lab-3",) and item.name in DRIFTING for item in page.drifting), night


def test_history_tells_the_same_at_the_end_of_the_month(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--records", str(records)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("FLAKY")] == [
        ["jitter-under-load::in-order", "lab-2"]
    ]
    drifting = {tuple(line.split()[1:3]) for line in lines if "drifting since" in line}
    assert drifting == {(name, "lab-3") for name in DRIFTING}
    assert not [line for line in lines if "failing since" in line]


def test_the_quick_look_says_what_the_long_one_says(records: Path) -> None:
    with connect(index_path(records)) as connection:
        for night in (3, 12, 19, 30):
            until = round(month.begin(night + 1).timestamp() * 1000)
            long, quick = (list(standings(connection, until_ms=until, brief=brief)) for brief in (False, True))
            assert [remark(one) for one in quick] == [remark(one) for one in long]
            assert [one.now for one in quick] == [one.now for one in long]


def test_history_of_a_check_says_which_firmware_it_followed(records: Path) -> None:
    with connect(index_path(records)) as connection:
        until = round(month.begin(15).timestamp() * 1000)
        found: list[Standing] = list(standings(connection, "zero-copy-latency::answer-time", until_ms=until))
    assert [one.key.bench for one in found] == list(month.BENCHES)
    for one in found:
        assert one.since is not None
        assert one.since.result.set_id == month.set_of(12)
        assert one.changed == ("firmware 2bad2cafe000 → 3bad3cafe000",)


def test_history_names_the_bench_that_measures_higher(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["history", "copy-latency::answer-time", "--records", str(records), "--since", "2025-12-01", "--json"])
    told = json.loads(capsys.readouterr().out)
    bias = {one["bench"]: one for one in told["bias"]["copy-latency::answer-time"]}
    assert bias["lab-3"]["offset"] > 0.1
    assert bias["lab-3"]["p"] < 0.001
    assert -0.25 < bias["lab-1"]["offset"] < -0.05
    assert {one["bench"] for one in told["series"]} == set(month.BENCHES)
