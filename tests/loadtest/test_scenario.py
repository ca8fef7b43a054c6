from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.arrivals import Arrivals
from loadtest.errors import LoadTestError
from loadtest.payloads import Wire
from loadtest.scenario import Step, check_step, load_scenario

SHIPPED = sorted((Path(__file__).parents[2] / "loadtest" / "scenarios").glob("*.toml"))


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def to_file(text: str) -> Path:
        path = tmp_path / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return to_file


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid(path: Path) -> None:
    steps = load_scenario(path, Step(concurrency=1))
    assert len(steps) >= 3
    closed = [index for index, step in enumerate(steps) if step.concurrency is not None]
    relative = [index for index, step in enumerate(steps) if step.capacity_fraction is not None]
    assert not relative or min(closed) < min(relative)


def test_shipped_scenarios_are_found() -> None:
    assert {path.stem for path in SHIPPED} == {"saturation", "steady", "burst", "mixed-sizes"}


def test_defaults_give_what_a_step_leaves_out(write) -> None:  # type: ignore[no-untyped-def]
    path = write(
        """
        [defaults]
        duration_s = 3
        rows = [1, 2]
        [[step]]
        concurrency = 4
        [[step]]
        label = "bursts"
        rate = 50
        arrivals = "burst"
        burst_size = 8
        duration_s = 7.5
        wire = "json"
        dims = { width = [160, 320] }
        """
    )
    first, second = load_scenario(path, Step(concurrency=99, warm_up_s=0.5, seed=3))
    assert first == Step(concurrency=4, duration_s=3.0, warm_up_s=0.5, rows=(1, 2), seed=3)
    assert second == Step(
        label="bursts",
        rate=50.0,
        arrivals=Arrivals.BURST,
        burst_size=8,
        duration_s=7.5,
        warm_up_s=0.5,
        wire=Wire.JSON,
        rows=(1, 2),
        dims={"width": (160, 320)},
        seed=3,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[step", "scenario"),
        ("", "at least one"),
        ("step = 3", "at least one"),
        ("step = [3]", "table of keys"),
        ("[[steps]]\nconcurrency = 1", "did you mean 'step'"),
        ("[[step]]\nconcurency = 1", "did you mean 'concurrency'"),
        ("[defaults]\nduration = 1\n[[step]]\nconcurrency = 1", "did you mean 'duration_s'"),
        ("[[step]]\nconcurrency = 1.5", "expected an integer"),
        ("[[step]]\nconcurrency = true", "expected an integer"),
        ("[[step]]\nrate = 'a'", "expected a number"),
        ("[[step]]\nrate = 1\narrivals = 'poison'", "arrivals = 'poison'"),
        ("[[step]]\nrate = 1\nrows = 1", "list of positive integers"),
        ("[[step]]\nrate = 1\nrows = [0]", "positive integers"),
        ("[[step]]\nrate = 1\ndims = [1]", "table of sizes"),
        ("[[step]]\nrate = 1\nlabel = 1", "expected text"),
        ("[[step]]\nlabel = 'x'", "exactly one"),
        ("[[step]]\nrate = 1\nconcurrency = 1", "exactly one"),
    ],
)
def test_mistakes_are_named(write, text: str, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LoadTestError, match=said):
        load_scenario(write(text), Step(concurrency=1))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadTestError, match=r"none\.toml"):
        load_scenario(tmp_path / "none.toml", Step(concurrency=1))


@pytest.mark.parametrize(
    "step",
    [
        Step(),
        Step(concurrency=0),
        Step(rate=-1.0),
        Step(rate=1.0, duration_s=0),
        Step(rate=1.0, warm_up_s=-1),
        Step(rate=1.0, grace_s=-1),
        Step(rate=1.0, burst_size=0),
    ],
)
def test_senseless_steps(step: Step) -> None:
    with pytest.raises(LoadTestError, match="step"):
        check_step(step)


@pytest.mark.parametrize(
    ("step", "title"),
    [
        (Step(label="mine", rate=1.0), "mine"),
        (Step(concurrency=16), "closed c=16"),
        (Step(rate=150.0), "poisson 150/s"),
        (Step(capacity_fraction=0.7, arrivals=Arrivals.CONSTANT), "constant 0.7 x capacity"),
    ],
)
def test_titles(step: Step, title: str) -> None:
    assert step.title == title
