from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from engines import plan_files
from engines.plan_files import HiddenPlan, discard_own, remove_leftovers
from service.errors import ModelLoadFailed
from service.runtime.trt.manifest import manifest_path

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "model.plan"


def names(plan: Path) -> set[str]:
    return {path.name for path in plan.parent.iterdir()}


def another_builder(plan: Path) -> subprocess.Popen[str]:
    """A process that has a hidden plan until its stdin ends."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom engines.plan_files import HiddenPlan\n"
        "with HiddenPlan(Path(sys.argv[1])) as hidden:\n"
        "    hidden.write(b'half')\n    hidden.write_manifest('{}')\n    print('ready', flush=True)\n"
        "    sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(plan)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_plan_is_hidden_until_it_is_published(plan: Path) -> None:
    with HiddenPlan(plan) as hidden:
        hidden.write(b"the plan")
        hidden.write_manifest("{}")
        hidden.write_manifest('{"format": 1}')
        assert all(name.startswith(".model.plan.") for name in names(plan))
        assert manifest_path(hidden.path).name in names(plan)
        hidden.publish()
    assert names(plan) == {"model.plan", "model.plan.json"}
    assert plan.read_bytes() == b"the plan"
    assert json.loads(manifest_path(plan).read_text()) == {"format": 1}


def test_a_build_that_fails_leaves_the_old_plan_and_nothing_else(plan: Path) -> None:
    plan.write_bytes(b"old")
    with HiddenPlan(plan) as hidden:
        hidden.write(b"half")
        hidden.write_manifest("{}")
    assert names(plan) == {"model.plan"}
    assert plan.read_bytes() == b"old"


def test_an_old_plan_is_replaced_with_its_manifest(plan: Path) -> None:
    plan.write_bytes(b"old")
    manifest_path(plan).write_text("old")
    with HiddenPlan(plan) as hidden:
        hidden.write(b"new")
        hidden.write_manifest("new")
        hidden.publish()
    assert (plan.read_bytes(), manifest_path(plan).read_text()) == (b"new", "new")


@pytest.mark.parametrize("dies_at", ["unlink", "replace", "second replace"])
def test_no_moment_of_publishing_shows_a_plan_with_the_manifest_of_another(
    plan: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    """A process that dies after each step is imitated by a step that raises what nothing catches."""
    plan.write_bytes(b"old")
    manifest_path(plan).write_text("old")

    class Died(BaseException):
        pass

    left = {"unlink": 0, "replace": 1, "second replace": 2}[dies_at]

    def dying(real: object) -> object:
        def step(self: Path, *args: object, **kwargs: object) -> object:
            nonlocal left
            if left == 0:
                raise Died
            left -= 1
            return real(self, *args, **kwargs)  # type: ignore[operator]

        return step

    hidden = HiddenPlan(plan)
    with hidden:
        hidden.write(b"new")
        hidden.write_manifest("new")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", dying(Path.unlink))
            patch.setattr(Path, "replace", dying(Path.replace))
            with pytest.raises(Died):
                hidden.publish()
        seen = (plan.read_bytes() if plan.exists() else None, manifest_path(plan).read_text())
        assert seen in {(b"old", "old"), (None, "old"), (None, "new")}


def test_what_a_killed_builder_left_is_removed_by_the_next(plan: Path) -> None:
    end(another_builder(plan))
    assert len(names(plan)) == 2
    with HiddenPlan(plan) as hidden:
        assert names(plan) == {hidden.path.name}
    assert names(plan) == set()


def test_leftovers_of_other_plans_are_not_touched(plan: Path) -> None:
    other = plan.with_name(".other.plan.1.tmp")
    other.touch()
    remove_leftovers(plan)
    assert names(plan) == {other.name}


def test_a_second_build_of_a_plan_is_refused_while_the_first_lives(plan: Path) -> None:
    process = another_builder(plan)
    try:
        before = names(plan)
        with pytest.raises(ModelLoadFailed, match=r"model\.plan' is being built already"), HiddenPlan(plan):
            raise AssertionError("two builds of one plan")
        assert names(plan) == before
        assert {path.name for path in remove_leftovers(plan)} < before
    finally:
        end(process)


def test_a_second_build_in_the_same_process_is_refused(plan: Path) -> None:
    with HiddenPlan(plan) as hidden:
        hidden.write(b"mine")
        with pytest.raises(ModelLoadFailed, match="is being built already"), HiddenPlan(plan):
            raise AssertionError("two builds of one plan")
        assert hidden.path.read_bytes() == b"mine"


def test_whoever_ends_the_process_can_remove_what_it_has(plan: Path) -> None:
    with HiddenPlan(plan) as hidden:
        hidden.write_manifest("{}")
        discard_own(plan)
        assert names(plan) == set()
        discard_own(plan)


def test_a_folder_that_is_not_there_is_said_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"cannot be written: No such file.*folder must be writable"):
        HiddenPlan(tmp_path / "none" / "model.plan").__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_is_read_only_is_said(plan: Path) -> None:
    plan.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(ModelLoadFailed, match="cannot be written: Permission denied"):
        HiddenPlan(plan).__enter__()


def test_a_full_disk_is_said_and_nothing_is_left(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(plan_files.os, "fsync", full)
    for write in (lambda hidden: hidden.write(b"plan"), lambda hidden: hidden.write_manifest("{}")):
        with (
            pytest.raises(ModelLoadFailed, match=r"No space left on device.*room for the plan"),
            HiddenPlan(plan) as it,
        ):
            write(it)
    assert names(plan) == set()


def test_a_disk_that_is_really_full_is_said(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not written is tried once more when the file is closed."""
    monkeypatch.setattr(plan_files, "_locked", lambda path: Path("/dev/full").open("ab"))  # noqa: SIM115 - closed there
    with pytest.raises(ModelLoadFailed, match="cannot be written: No space left on device"), HiddenPlan(plan) as hidden:
        hidden.write(b"the plan")
    assert names(plan) == set()


def test_a_name_that_a_folder_takes_meanwhile_is_said(plan: Path) -> None:
    with HiddenPlan(plan) as hidden:
        plan.mkdir()
        hidden.write_manifest("{}")
        with pytest.raises(ModelLoadFailed, match="cannot be written"):
            hidden.publish()


@pytest.mark.parametrize("taken", ["model.plan", "model.plan.json"])
def test_a_name_that_is_taken_by_a_folder_is_said_before_the_build(plan: Path, taken: str) -> None:
    (plan.parent / taken).mkdir()
    with pytest.raises(ModelLoadFailed, match=f"{taken}' is a folder"), HiddenPlan(plan):
        raise AssertionError("a build would take minutes")
    assert names(plan) == {taken}


def test_a_file_that_was_removed_before_it_was_locked_is_made_anew(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = plan_files.fcntl.flock, list[int]()

    def flock(file: IO[bytes], operation: int) -> None:
        if not seen:
            Path(file.name).unlink()
        seen.append(operation)
        real(file, operation)

    monkeypatch.setattr(plan_files.fcntl, "flock", flock)
    with HiddenPlan(plan) as hidden:
        assert len(seen) > 1
        assert hidden.path.exists()
