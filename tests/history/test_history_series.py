"""A series as a reader sees it: what settles a night, where a streak begins, what is flaky, what a bench adds."""

from __future__ import annotations

from rig.history.series import Key, Result, Settled, biases, settle, standing
from rig.history.table import follows

KEY = Key("some-plan", "", "answer-time", "lab-1")
DAY_MS = 86_400_000


def result(
    night: int, state: str, *, value: int = 1000, firmware: str = "f1", attempt: int = 1, plan: str = "p1"
) -> Result:
    verdict = {"green": "PASS", "red": "FAIL", "open": "INCONCLUSIVE", "skip": "SKIP"}[state]
    return Result(
        started_ms=night * DAY_MS + attempt,
        set_id=f"set-{night}",
        folder=f"set-{night}/{attempt}",
        attempt=attempt,
        state=state,  # type: ignore[arg-type]
        verdict=verdict,
        n=100,
        figure="p50",
        value=value,
        bound=5000,
        falling=False,
        reason="",
        error="",
        firmware=firmware,
        build=firmware,
        commit="c1",
        plan_hash=plan,
    )


def nights(states: str, **more: str) -> list[Settled]:
    """One letter a night: g, r, o, s."""
    names = {name[0]: name for name in ("green", "red", "open", "skip")}
    return settle(result(night, names[letter], **more) for night, letter in enumerate(states))


def test_one_red_of_a_set_is_never_outvoted() -> None:
    settled = settle([result(1, "green", attempt=2), result(1, "red"), result(1, "green", attempt=3)])
    assert [one.state for one in settled] == ["red"]
    assert settled[0].mixed
    assert len(settled[0].attempts) == 3


def test_what_was_undecided_is_settled_by_a_later_attempt() -> None:
    settled = settle(
        [result(1, "open"), result(1, "green", attempt=2), result(2, "skip"), result(2, "open", attempt=2)]
    )
    assert [one.result.folder for one in settled] == ["set-1/2", "set-2/2"]
    assert not settled[0].mixed


def test_a_streak_reaches_over_nights_without_a_verdict() -> None:
    found = standing(KEY, nights("ggrorosr"))
    assert found.since is not None
    assert found.since.result.set_id == "set-2"
    assert found.last_good is not None
    assert found.last_good.result.set_id == "set-1"
    assert found.streak == 3
    assert found.before == "red"


def test_the_state_before_is_the_last_one_with_a_colour() -> None:
    assert standing(KEY, nights("gor")).before == "green"
    assert standing(KEY, nights("r")).before is None
    assert standing(KEY, nights("ro")).before == "red"
    assert standing(KEY, nights("ro")).now.state == "open"


def test_a_break_names_what_changed() -> None:
    settled = [*nights("gg"), *settle([result(2, "red", firmware="f2", plan="p2")])]
    assert standing(KEY, settled).changed == ("firmware f1 → f2", "the plan itself")
    assert standing(KEY, nights("gr")).changed == ()


def test_a_break_with_uncommitted_changes_has_not_the_same_controller() -> None:
    (green, red) = (result(0, "green"), result(1, "red")._replace(dirty=True))
    dirty = "c1 with uncommitted changes"
    assert standing(KEY, settle([green, red])).changed == (f"commit c1 → {dirty}",)
    assert standing(KEY, settle([green._replace(dirty=True), red])).changed == (f"commit {dirty} → {dirty}",)
    assert follows(standing(KEY, settle([green, red]))) == f"follows commit c1 → {dirty}"


def test_a_fault_that_came_and_was_repaired_is_not_flaky() -> None:
    assert not standing(KEY, nights("gggrrggg")).flaky
    assert standing(KEY, nights("gggrggrg")).flaky


def test_changes_with_another_firmware_are_no_flips() -> None:
    states = ["green", "red"] * 5
    settled = settle(result(night, state, firmware=f"f{night}") for night, state in enumerate(states))
    found = standing(KEY, settled)
    assert (found.flips, found.pairs, found.flaky) == (0, 0, False)


def test_a_flake_that_stays_red_is_a_failure() -> None:
    assert standing(KEY, nights("grgrgrrrr")).flaky
    assert not standing(KEY, nights("grgrgrrrrr")).flaky


def test_flaky_rate_is_flips_over_comparable_pairs() -> None:
    assert standing(KEY, nights("grgrgggg")).flaky_rate == 4 / 7


def test_old_flakes_are_forgotten() -> None:
    assert not standing(KEY, nights("grgrgr" + 20 * "g")).flaky


def test_a_bench_is_compared_with_the_others_on_the_same_days() -> None:
    benches = {
        "lab-1": settle(result(night, "green", value=1000) for night in range(12)),
        "lab-2": settle(result(night, "green", value=1200) for night in range(12)),
        "lab-3": settle(result(night, "green", value=1000) for night in range(20, 24)),
    }
    found = {one.bench: one for one in biases(benches, lambda one: one.result.started_ms // DAY_MS)}
    assert found.keys() == {"lab-1", "lab-2"}
    assert (round(found["lab-2"].offset, 3), found["lab-2"].sets) == (0.2, 12)
    assert found["lab-2"].p == 2 / 2**12


def test_benches_of_which_another_figure_is_followed_are_not_compared() -> None:
    def day(settled: Settled) -> int:
        return settled.result.started_ms // DAY_MS

    p99 = settle(result(night, "green", value=3000)._replace(figure="p99") for night in range(12))
    p50 = {bench: settle(result(night, "green", value=1000) for night in range(12)) for bench in ("lab-1", "lab-2")}
    assert biases({"emulated": p99, "lab-1": p50["lab-1"]}, day) == []
    assert {one.bench: one.offset for one in biases({"emulated": p99, **p50}, day)} == {"lab-1": 0, "lab-2": 0}
