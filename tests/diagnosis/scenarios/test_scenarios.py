"""A fault injected into a real server under real load comes first in its diagnosis."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from service.diagnosis_text.report import to_text
from tests.diagnosis.scenarios.play import ATTEMPTS, attempt, attempts, counted
from tests.diagnosis.scenarios.recipes import RECIPES

pytestmark = [pytest.mark.scenario, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(240)]


QUIET_CORES_WANTED = frozenset({"lane-count"})
"""A second lane gains nothing where the load's client needs the second core: `tests.diagnosis.confusion` runs these."""


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in QUIET_CORES_WANTED])
def test_the_injected_fault_comes_first(name: str, tmp_path: Path) -> None:
    made = attempts(partial(attempt, RECIPES[name], tmp_path))
    story = "\n".join(f"attempt {number}: {one}" for number, one in enumerate(made, 1))
    if not made[-1].is_right and len(counted(made)) < ATTEMPTS:
        pytest.skip(f"others disturbed this machine, and nothing can be said of the rules:\n{story}")
    assert made[-1].is_right, f"{story}\n{to_text(made[-1].document)}"
