"""Plans that run each point several times, and compare points: order, who decides, what pytest and JUnit say."""

from __future__ import annotations

from pathlib import Path

from desk import MATRIX, Desk, cases, kind_of, properties_of

A, B = "variant-copy", "variant-zero_copy"
SHOWN = f"shown: {{of: answer-time, a: {A}, b: {B}}}"
FASTER = f"faster: {{of: answer-time, a: {A}, b: {B}, difference: {{max: -500 us}}}}"
SLOWER = f"slower: {{of: answer-time, a: {A}, b: {B}, difference: {{min: 500 us}}}}"


def comparing(*comparisons: str, repeat: int = 5, more: str = "") -> str:
    return f"{MATRIX}\nrepeat: {repeat}\ncomparisons: {{{', '.join(comparisons)}}}\n{more}"


def test_points_run_interleaved_and_each_run_has_its_line(desk: Desk) -> None:
    desk.plan("two", f"{MATRIX}\nrepeat: 3")
    done = desk.pytest("-v")
    assert done.status == 0, done.text
    assert done.titles == [f"two[{one}]" for one in (A, B, B, A, A, B)]
    table = done.text.partition("= runs =")[2]
    order = [f"PASS          two[{one}] {k}/3 " for one, k in ((A, 1), (B, 1), (B, 2), (A, 2), (A, 3), (B, 3))]
    places = [table.index(line) for line in order]
    assert places == sorted(places)
    assert "6 passed" in done.text


def test_one_run_each_is_made_when_its_own_checks_come(desk: Desk) -> None:
    desk.plan("fail-it", MATRIX)
    assert desk.pytest("-x").titles == [f"fail-it[{A}]"]
    picked = desk.pytest(f"fail-it.plan.yaml::fail-it[{B}]::alive", f"fail-it.plan.yaml::fail-it[{A}]::alive")
    assert picked.titles == [f"fail-it[{B}]", f"fail-it[{A}]"]


def test_the_worst_run_decides_a_check_and_is_named(desk: Desk) -> None:
    desk.plan("fail-it", "repeat: 3")
    xml = desk.folder / "junit.xml"
    done = desk.pytest(f"--junitxml={xml}", STUB_ONLY="2,3")
    assert done.status == 1
    failed = cases(xml)["fail-it::answer-time"]
    assert kind_of(failed) == "failure"
    [text] = [child.text for child in failed if child.tag == "failure"]
    assert str(text).startswith("FAIL answer-time: because of fail\n  run 2 of 3, record: records/")
    assert "FAIL too in run 3 of 3, record: " in str(text)
    assert Path(str(properties_of(failed)["record"])).name == "002-fail-it"
    assert "2 passed" in done.text


def test_a_check_that_must_fail_must_do_so_in_every_run(desk: Desk) -> None:
    desk.plan("fail-it", "repeat: 2\nexpect: {fail: [answer-time]}")
    assert desk.pytest().status == 0
    done = desk.pytest(STUB_ONLY="1")
    assert done.status == 1
    assert "FAIL answer-time: PASS, but the plan expects `answer-time` to FAIL" in done.text
    assert "run 2 of 2" in done.text


def test_comparisons_are_items_after_the_last_point(desk: Desk) -> None:
    desk.plan("two", comparing(FASTER, SLOWER, SHOWN))
    xml = desk.folder / "junit.xml"
    done = desk.pytest("-v", f"--junitxml={xml}")
    assert done.status == 1
    lines = [line for line in done.text.splitlines() if "two.plan.yaml::two::" in line and "%]" in line]
    assert [line.split()[:2] for line in lines] == [
        ["two.plan.yaml::two::faster", "PASSED"],
        ["two.plan.yaml::two::slower", "FAILED"],
        ["two.plan.yaml::two::shown", "SKIPPED"],
    ]
    found = cases(xml)
    assert [kind_of(found[f"two::{name}"]) for name in ("faster", "slower", "shown")] == [
        "passed",
        "failure",
        "skipped",
    ]
    assert properties_of(found["two::slower"])["verdict"] == "FAIL"
    assert "p50 of answer-time, variant-zero_copy against variant-copy: -1 ms [-1 ms, -1 ms] over 5 pairs" in done.text
    assert "the plan sets no bound, so there is no verdict" in done.text
    table = done.text.partition("= runs =")[2]
    assert "FAIL          two::slower" in table
    assert "SKIP          two::shown" in table
    assert len(done.runs) == 10


def test_a_comparison_sets_off_the_runs_that_it_needs_and_no_others(desk: Desk) -> None:
    matrix = MATRIX.replace("zero_copy]", "zero_copy, third]")
    desk.plan("three", comparing(FASTER).replace(MATRIX, matrix))
    done = desk.pytest("three.plan.yaml::three::faster")
    assert done.status == 0, done.text
    assert "1 passed" in done.text
    assert sorted(done.titles) == [f"three[{A}]"] * 5 + [f"three[{B}]"] * 5
    one = desk.pytest("-k", A)
    assert one.titles == [f"three[{A}]"] * 5
    assert "faster" not in one.text


def test_a_comparison_of_what_the_bench_cannot_run_is_skipped(desk: Desk) -> None:
    desk.plan("skip-it", comparing(FASTER))
    done = desk.pytest()
    assert done.status == 5
    assert "its points were not both run" in done.text
    assert done.titles == [f"skip-it[{A}]", f"skip-it[{B}]"]  # not tried again


def test_a_comparison_may_be_expected_to_fail(desk: Desk) -> None:
    desk.plan("right", comparing(SLOWER, SHOWN, more="expect: {fail: [slower]}"))
    desk.plan("wrong", comparing(FASTER, more="expect: {fail: [faster]}"))
    xml = desk.folder / "junit.xml"
    done = desk.pytest(f"--junitxml={xml}")
    found = cases(xml)
    assert (kind_of(found["right::slower"]), properties_of(found["right::slower"])["verdict"]) == ("passed", "FAIL")
    assert (kind_of(found["wrong::faster"]), properties_of(found["wrong::faster"])["verdict"]) == ("failure", "PASS")
    assert "FAIL faster: PASS, but the plan expects `faster` to FAIL" in done.text
    assert "1 failed, 13 passed, 1 skipped" in done.text


def test_a_bug_in_one_run_is_shown_by_the_checks_of_its_point_and_by_the_comparison(desk: Desk) -> None:
    desk.plan("bug-it", comparing(FASTER))
    done = desk.pytest(STUB_ONLY="3")
    assert done.titles == [f"bug-it[{one}]" for one in (A, B, B, A, A, A, A)]
    assert "3 passed, 4 errors" in done.text


def test_a_plan_that_compares_stays_on_one_worker_and_others_do_not(desk: Desk) -> None:
    desk.plan("one", comparing(FASTER))
    desk.plan("two", MATRIX)
    done = desk.pytest("-n", "2", "-v")
    assert done.status == 0, done.text
    assert len({run[0] for run in done.runs if run[-1].startswith("one")}) == 1
    assert [run[-1] for run in done.runs if run[-1].startswith("one")] == [
        f"one[{point}]" for point in (A, B, B, A, A, B, B, A, A, B)
    ]
    assert sorted(run[-1] for run in done.runs if run[-1].startswith("two")) == [f"two[{A}]", f"two[{B}]"]
    assert "PASS          one::faster" in done.text.partition("= runs =")[2]
    assert done.text.count("\n  flash              1.25 s") == 12


def test_rig_run_makes_the_same_runs_and_its_exit_code_counts_comparisons(desk: Desk) -> None:
    records = f"--record-dir={desk.folder / 'records'}"
    done = desk.rig("run", desk.plan("two", comparing(FASTER, SHOWN)), records)
    assert done.status == 0, done.text
    assert done.titles == [f"two[{point}]" for point in (A, B, B, A, A, B, B, A, A, B)]
    table = done.text.partition("verdict ")[2]
    assert "PASS          two[variant-copy] 5/5" in table
    assert "PASS          two::faster" in table
    assert "SKIP          two::shown" in table

    failing = desk.rig("run", desk.plan("three", comparing(SLOWER)), records)
    assert failing.status == 1
    assert "FAIL slower: p50 of answer-time" in failing.text
    one = desk.rig("run", desk.folder / "three.plan.yaml", "--point", A, records)
    assert one.status == 0, one.text
    assert "its points were not both run" in one.text

    expected = comparing(SLOWER, more="expect: {fail: [slower]}")
    assert desk.rig("run", desk.plan("four", expected), records).status == 0
    assert desk.rig("run", desk.folder / "four.plan.yaml", "--point", A, records).status == 0  # nothing to fail
    wrong = desk.rig("run", desk.plan("five", comparing(FASTER, more="expect: {fail: [faster]}")), records)
    assert wrong.status == 1
    assert "five::faster: PASS, but the plan expects `faster` to FAIL" in wrong.text


def test_after_a_crash_the_whole_plan_runs_again_elsewhere(desk: Desk) -> None:
    desk.plan("crash-it", comparing(FASTER))
    done = desk.pytest("-n", "1")
    assert done.status == 1
    assert "6 passed, 1 error" in done.text
    assert done.titles == [f"crash-it[{A}]", *(f"crash-it[{point}]" for point in (A, B, B, A, A, B, B, A, A, B))]
