"""`inferlane bench --save`, `--against`, `--against-repository` on real models: what got slower fails, and is named."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from service.bench.compare import MATERIAL
from service.bench.gate import INTERLEAVED_TOLERANCE, SAVED_TOLERANCE, GateOptions, Outcome
from service.cli import app
from service.errors import InvalidInput, ServiceError
from tests.doubles import onnx_models
from tests.doubles.running_server import add_model

CARD = "[batching]\nmax_batch_size = 2\n[lanes]\nthreads_per_lane = 1\n"


WELL = ("--rounds", "20", "--duration", "0.4")
"""Where a difference is to be found, on a machine that others use."""

FAILED = (Outcome.SLOWER.value, Outcome.UNDECIDED.value)
"""Of a file: a neighbour that is busy only now leaves it undecided."""


def add_products(repository: Path, products: int, card: str = CARD) -> None:
    add_model(repository, "m", lambda path: onnx_models.make_slow(path, side=64, products=products), card)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    add_products(tmp_path / "before", 2)
    return tmp_path / "before"


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """The same model with eight times as many products."""
    add_products(tmp_path / "after", 16)
    return tmp_path / "after"


def bench(repository: Path, *arguments: object) -> Result:
    command = ["bench", "m", "--repository", repository, "--duration", "0.1", "--rounds", "10", *arguments]
    return CliRunner().invoke(app, [str(each) for each in command], catch_exceptions=False)


def test_what_got_slower_than_in_the_file_fails(before: Path, after: Path, tmp_path: Path) -> None:
    saved = bench(before, *WELL, "--save", tmp_path / "run.json")
    assert (saved.exit_code, saved.output) == (0, "")
    result = bench(after, *WELL, "--against", tmp_path / "run.json", "--json")
    assert result.exit_code in FAILED
    told = orjson.loads(result.output)
    assert told["outcome"] in {"slower", "undecided"}
    assert told["min_slowdown"] == SAVED_TOLERANCE
    slower = {(each["bucket"], each["name"]) for each in told["changes"] if each["verdict"] == "slower"}
    assert {("2", "compute"), ("1", "compute")} <= slower
    assert all(each["low"] < each["ratio"] < each["high"] for each in told["changes"])
    assert told["notes"] == ["note: model.onnx is another file"]


def test_what_got_slower_than_in_the_other_repository_fails_and_the_other_way_round_passes(
    before: Path, after: Path
) -> None:
    failed = bench(after, *WELL, "--against-repository", before, "--bucket", "1")
    assert failed.exit_code == Outcome.SLOWER.value
    assert "slower" in failed.output
    assert f"{INTERLEAVED_TOLERANCE:.0%}" in failed.output
    assert "of 6 places got slower" in failed.output
    passed = bench(before, *WELL, "--against-repository", after, "--bucket", "1")
    assert passed.exit_code == 0
    assert "faster" in passed.output
    assert "nothing got slower, of 6 places" in passed.output


def test_the_layer_that_got_slower_is_named(before: Path, after: Path, tmp_path: Path) -> None:
    path, bucket = tmp_path / "run.json", ("--bucket", "2")
    assert bench(before, *bucket, "--layers", "--save", path).exit_code == 0
    kinds = {(each["bucket"], each["kind"]) for each in orjson.loads(path.read_bytes())["series"]}
    assert kinds == {("", "stage"), ("2", "stage"), ("2", "layer")}
    told = orjson.loads(bench(after, *bucket, "--layers", "--against", path, "--json").output)
    assert "layer" in {each["kind"] for each in told["changes"]}
    assert any("the baseline lacks 2 layer" in note for note in told["notes"]), "the larger model has more products"


def test_a_profile_of_trtexec_has_no_noise_of_its_own(before: Path, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    layers = orjson.loads(bench(before, "--bucket", "2", "--layers", "--json").output)
    assert bench(before, "--bucket", "2", "--export-profile", path).exit_code == 0
    content = orjson.loads(path.read_bytes())
    assert len(content) > 1
    assert layers
    for layer in content[1:]:
        layer["medianMs"] /= 1000.0
    path.write_bytes(orjson.dumps(content))
    result = bench(before, "--bucket", "2", "--layers", "--against", path)
    assert result.exit_code == Outcome.SLOWER.value


def test_buckets_that_only_one_has_are_told(before: Path, tmp_path: Path) -> None:
    assert bench(before, "--save", tmp_path / "run.json").exit_code == 0
    add_products(tmp_path / "wider", 2, "[batching]\nmax_batch_size = 4\n[buckets]\nbatch = [1, 4]\n")
    told = bench(tmp_path / "wider", "--against", tmp_path / "run.json", "--tolerance", "10000")
    assert told.exit_code == 0
    assert "only the baseline has 2 stage enqueue, 2 stage h2d" in told.output
    assert "the baseline lacks 4 stage enqueue" in told.output
    assert "model.toml is another file" in told.output


def test_times_are_exported_and_compared_as_trtexec_writes_them(before: Path, after: Path, tmp_path: Path) -> None:
    times = tmp_path / "times.json"
    assert bench(before, *WELL, "--bucket", "2", "--export-times", times).exit_code == 0
    assert {"computeMs", "latencyMs", "startEnqMs"} <= set(orjson.loads(times.read_bytes())[0])
    result = bench(after, *WELL, "--bucket", "2", "--against", times)
    assert result.exit_code == Outcome.SLOWER.value, "such a file has no reference that could leave it undecided"
    assert "the baseline does not tell its machine" in result.output


def test_another_machine_is_refused_unless_it_is_asked_for(before: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert bench(before, "--save", path).exit_code == 0
    content = orjson.loads(path.read_bytes())
    content["origin"]["machine"]["processor"] = "another"
    path.write_bytes(orjson.dumps(content))
    with pytest.raises(InvalidInput, match=r"recorded otherwise: processor was another, is .*--any-machine"):
        bench(before, "--against", path)
    with pytest.raises(InvalidInput, match="lanes was 1, is 2"):
        bench(before, "--against", path, "--lanes", "2")
    told = bench(before, "--against", path, "--any-machine", "--tolerance", "10000")
    assert told.exit_code == 0
    assert "warning: processor was another" in told.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", "x", "--against-repository", "y"), "two baselines"),
        (("--save", "x", "--lanes", "1", "--lanes", "2"), "give --lanes once"),
        (("--export-times", "x"), "name it with one --bucket"),
        (("--against", "absent.json"), "cannot be read"),
        (("--against-repository", "absent"), "the repository 'absent' cannot be read"),
        (("--save", "x", "--bucket", "3"), "has no bucket 3"),
        (("--save", "x", "--dim", "sequence=1:8"), "--save cannot be given with --dim"),
    ],
)
def test_what_contradicts_itself_is_refused(before: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        bench(before, *arguments)


def test_baselines_with_nothing_in_common_are_refused(before: Path, tmp_path: Path) -> None:
    assert bench(before, "--bucket", "1", "--save", tmp_path / "run.json").exit_code == 0
    with pytest.raises(InvalidInput, match="no bucket and stage in common"):
        bench(before, "--bucket", "2", "--against", tmp_path / "run.json")
    add_products(tmp_path / "other", 2, "[batching]\nmax_batch_size = 8\n[buckets]\nbatch = [8]\n")
    with pytest.raises(InvalidInput, match="share no bucket"):
        bench(before, "--against-repository", tmp_path / "other")
    with pytest.raises(InvalidInput, match="has no bucket 2"):
        bench(before, "--against-repository", tmp_path / "other", "--bucket", "2")


def test_the_tolerance_is_that_of_the_baseline_unless_it_is_said() -> None:
    assert GateOptions(against=Path("x")).tolerance.min_slowdown == SAVED_TOLERANCE
    assert GateOptions(against_repository=Path("x")).tolerance.min_slowdown == INTERLEAVED_TOLERANCE
    assert GateOptions(against=Path("x"), min_slowdown=0.2).tolerance.min_slowdown == 0.2
    assert not GateOptions().is_wanted


def test_the_documentation_tells_the_statuses_and_tolerances_of_the_code() -> None:
    text = (Path(__file__).parents[3] / "docs" / "regression-gate.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| (\d) \| (.+) \|$", text, re.MULTILINE))
    assert "nothing got slower" in told[str(Outcome.PASSED.value)]
    assert "something got slower" in told[str(Outcome.SLOWER.value)]
    assert "undecided" in told[str(Outcome.UNDECIDED.value)]
    assert f"| counts from | {INTERLEAVED_TOLERANCE * 100:.0f} % | {SAVED_TOLERANCE * 100:.0f} % |" in text
    assert f"`--rounds` ({GateOptions().rounds})" in text
    assert f"at least {MATERIAL * 100:.0f} % of the batch" in text
