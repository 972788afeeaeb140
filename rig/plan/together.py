"""The plans of one invocation: the faults of all files at once, and no two plans of one name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rig.errors import Fault, PlanError
from rig.plan.load import PlanFile, load_plan


class PlanNames:
    """The names that are taken. Record folders, comparisons and the history know a plan by its name alone."""

    def __init__(self) -> None:
        self._files: dict[str, Path] = {}

    def take(self, plan_file: PlanFile) -> None:
        """Raise PlanError when another file's plan has the name; one file may come several times."""
        name = plan_file.plan.plan
        first = self._files.setdefault(name, plan_file.path)
        if first.resolve() != plan_file.path.resolve():
            message = f"plan name `{name}` is that of {first} too; records and history go by the name: change one"
            raise PlanError(f"two plans are named {name}", faults=[plan_file.document.fault(("plan",), message)])


def load_plans(paths: Iterable[Path]) -> list[PlanFile]:
    """Load plan files in their order; raises one PlanError with the faults of all of them."""
    names = PlanNames()
    plans: list[PlanFile] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            plan_file = load_plan(path)
            names.take(plan_file)
        except PlanError as error:
            faults += error.faults
        else:
            plans.append(plan_file)
    if faults:
        raise PlanError(f"{len(faults)} faults", faults=faults)
    return plans
