"""Lines of a finding take the place of a card's own, and nothing else changes."""

from __future__ import annotations

import pytest

from tests.diagnosis.card_change import changed, tomllib

CARD = """
task = "classify"
[batching]
max_batch_size = 8
max_queue_delay_ms = 20
[[profile]]
x = { min = [1, 8], opt = [4, 8], max = [8, 8] }
"""


@pytest.mark.parametrize(
    ("lines", "path", "value"),
    [
        ("[batching]\nmax_queue_delay_ms = 0", ("batching", "max_queue_delay_ms"), 0),
        ("[buckets]\nsequence = [8, 32]  # where they are", ("buckets", "sequence"), [8, 32]),
        ('[lanes]\ncompletion = "spin"', ("lanes", "completion"), "spin"),
        ("[probe]\nis_on = true", ("probe", "is_on"), True),
        ('task = "embed"', ("task",), "embed"),
        ("", ("batching", "max_queue_delay_ms"), 20),
    ],
)
def test_what_the_lines_name_changes_and_the_rest_stays(lines: str, path: tuple[str, ...], value: object) -> None:
    document = tomllib.loads(changed(CARD, lines))
    place = document
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] == value
    place.pop(path[-1])
    before = tomllib.loads(CARD)
    assert before["profile"] == document["profile"]
    assert document["batching"]["max_batch_size"] == 8


def test_profiles_are_replaced_together() -> None:
    document = tomllib.loads(changed(CARD, "[[profile]]\nx = { min = [2, 8], opt = [2, 8], max = [2, 8] }"))
    assert document["profile"] == [{"x": {"min": [2, 8], "opt": [2, 8], "max": [2, 8]}}]


def test_an_empty_card_takes_the_lines() -> None:
    assert tomllib.loads(changed("", "[lanes]\ncount = 2")) == {"lanes": {"count": 2}}
