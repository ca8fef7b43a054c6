from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import Settings
from service.settings_reference import BEGIN, END, settings_table, with_settings_table

ROOT = Path(__file__).parents[2]


def test_the_readme_s_table_is_up_to_date():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_settings_table(text) == text, "run: python -m service.settings_reference README.md"


def test_every_setting_has_a_row_and_every_row_four_cells():
    rows = settings_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [f"INFERLANE_{name.upper()}" for name in Settings.model_fields]
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}


@pytest.mark.parametrize(
    ("name", "default", "allowed"),
    [
        ("repository", "`models`", "path"),
        ("port", "`8000`", "integer, ≥ 0, ≤ 65535"),
        ("models", "none", "JSON list of texts"),
        ("cpu_threads", "none", "integer, ≥ 1, ≤ 1024"),
        ("body_timeout_s", "`30.0`", "number, > 0, ≤ 86400"),
        ("overload_status", "`503`", "`503` or `429`"),
        ("metrics_enabled", "`true`", "`true` or `false`"),
        ("api_key", "none", "text"),
        ("log_level", "`info`", "`debug` or `info` or `warning` or `error`"),
    ],
)
def test_default_and_allowed_values(name, default, allowed):
    row = next(row for row in settings_table().splitlines() if f"`INFERLANE_{name.upper()}`" in row)
    assert row.startswith(f"| `INFERLANE_{name.upper()}` | {default} | ")
    assert row.endswith(f" | {allowed} |")


def test_what_stands_around_the_table_is_kept(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "service.settings_reference", str(readme)], cwd=ROOT, check=True)
        assert readme.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{settings_table()}{END}\nafter\n"


@pytest.mark.parametrize(
    "text", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}", f"{BEGIN}\n{END}\n{END}"]
)
def test_a_text_without_both_markers_is_refused(text):
    with pytest.raises(ValueError, match="settings:begin"):
        with_settings_table(text)
