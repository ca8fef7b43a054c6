"""How far a reading is from what stands there."""

from __future__ import annotations


def character_error_rate(got: str, reference: str) -> float:
    """Insertions, deletions and substitutions (Levenshtein) over the characters of the reference."""
    row = list(range(len(reference) + 1))
    for index, character in enumerate(got, start=1):
        previous, row[0] = row[0], index
        for column, expected in enumerate(reference, start=1):
            best = min(row[column] + 1, row[column - 1] + 1, previous + (character != expected))
            previous, row[column] = row[column], best
    return row[-1] / len(reference)
