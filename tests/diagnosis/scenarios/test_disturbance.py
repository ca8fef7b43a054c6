"""What others take of a machine is what its counters show beyond the scenario's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.diagnosis.scenarios.disturbance import Disturbance, Looks, between, core_count, look

TICKS = os.sysconf("SC_CLK_TCK")


def lay_out(proc: Path, *, user: int, idle: int, stolen: int, own: int) -> Path:
    """A `/proc` of two processors and one process, 7; seconds as given."""
    columns = [user, 0, 0, idle, 5, 0, 0, stolen, 0, 0]
    ticks = " ".join(str(column * TICKS) for column in columns)
    (proc / "7").mkdir(parents=True, exist_ok=True)
    (proc / "stat").write_text(f"cpu  {ticks}\ncpu0 {ticks}\ncpu1 {ticks}\nintr 1\n")
    fields = ["S", *["1"] * 10, str(own * TICKS), "0", "0", "0", "20"]
    (proc / "7" / "stat").write_text(f"7 (a name) with) blanks) {' '.join(fields)}\n")
    return proc


@pytest.mark.parametrize(
    ("busy", "own", "stolen", "others_share", "stolen_share"),
    [
        (10.0, 10.0, 0.0, 0.0, 0.0),
        (15.0, 10.0, 0.0, 0.25, 0.0),
        (10.0, 10.0, 2.0, 0.0, 0.1),
        (9.0, 10.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_share_of_others(busy: float, own: float, stolen: float, others_share: float, stolen_share: float) -> None:
    found = between(Looks(100.0, 50.0, 1.0, 3.0), Looks(110.0, 50.0 + busy, 1.0 + stolen, 3.0 + own), 2)
    assert found.others == pytest.approx(others_share)
    assert found.stolen == pytest.approx(stolen_share)


@pytest.mark.parametrize(
    ("others", "stolen", "is_much"), [(0.05, 0.0, False), (0.05, 0.04, False), (0.2, 0.0, True), (0.06, 0.06, True)]
)
def test_a_tenth_of_the_machine_is_much(others: float, stolen: float, is_much: bool) -> None:
    assert Disturbance(others, stolen).is_much is is_much


def test_counters_are_read_by_their_columns(tmp_path: Path) -> None:
    lay_out(tmp_path, user=30, idle=70, stolen=4, own=12)
    with_process, without = look([7], tmp_path), look([], tmp_path)
    assert (with_process.busy_s, with_process.stolen_s) == (30.0, 4.0)
    assert with_process.own_s - without.own_s == pytest.approx(12.0, abs=1.0)
    assert core_count(tmp_path) == 2


def test_a_system_without_counters_knows_of_no_disturbance(tmp_path: Path) -> None:
    found = between(look([], tmp_path), look([], tmp_path), core_count(tmp_path))
    assert (found.others, found.stolen) == (0.0, 0.0)
    assert core_count(tmp_path) == 1
