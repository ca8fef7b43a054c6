"""`inferlane bench` on a real model of a repository."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from service.bench.measure import Trial
from service.bench.run import bench_buckets, parse_lengths
from service.buckets import Form
from service.cli import app
from service.errors import InvalidInput
from tests.doubles import onnx_models
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_media_spec
from tests.doubles.running_server import add_model

CARD = "[batching]\nmax_batch_size = 2\n[buckets]\nsequence = [8, 16]\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_model(tmp_path, "sequences", onnx_models.make_sequence, CARD)
    add_model(tmp_path, "exact", onnx_models.make_identity_any_width)
    add_model(tmp_path, "fixed", onnx_models.make_identity)
    add_model(tmp_path, "two", lambda path: onnx_models.make_identity(path, dims=("batch", "height", "width")))
    return tmp_path


def run(repository: Path, *arguments: str) -> str:
    command = ["bench", *arguments, "--repository", str(repository), "--duration", "0.05"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_bucket_is_measured(repository: Path) -> None:
    figures = orjson.loads(run(repository, "sequences", "--lanes", "1", "--lanes", "2", "--json"))
    assert [each["bucket"] for each in figures] == ["2x16", "1x16", "2x8", "1x8"]
    assert all([lanes["lanes"] for lanes in each["lanes"]] == [1, 2] for each in figures)


def test_one_bucket_as_a_table(repository: Path) -> None:
    shown = run(repository, "sequences", "--bucket", "1x8", "--request-rows", "1")
    assert "1x8" in shown
    assert "2x16" not in shown


@pytest.mark.parametrize("rows_per_request", [None, 1, 2])
def test_a_bucket_of_media_is_named_by_its_label(rows_per_request: int | None) -> None:
    backend = HeldBackend(make_media_spec(), clock=time.monotonic_ns, held=False)
    trial = Trial(lane_counts=(1,), duration_s=0.02, rows_per_request=rows_per_request)
    (figures,) = bench_buckets(backend, ["8:media"], trial)
    assert figures.bucket.label == "8:media"
    assert figures.lanes[0].rows_per_s > 0
    assert {batch.bucket.form for batch in backend.batches} == {Form.MEDIA}
    assert {len(batch.requests) for batch in backend.batches} == {8}, "a text is one row, and is never cut nor joined"
    assert backend.is_closed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sequences", "--bucket", "3x8"), "has no bucket 3x8; it has 2x16, 1x16, 2x8, 1x8"),
        (("exact",), "every size of"),
        (("sequences", "--dim", "width=1:2"), "--dim names width, but model 'sequences' has sequence"),
        (("fixed", "--dim", "width=1:2"), "'fixed' has no dynamic dimension besides the rows"),
        (("two", "--dim", "height=8:16"), "sizes of width are needed, such as --dim width=8:512"),
        (("absent",), r"'absent' is not in the repository '.*', which holds \['exact', 'fixed', 'sequences', 'two'\]"),
        (("absent", "--dim", "width=1:2"), "'absent' is not in the repository"),
        (("sequences", "--dim", "sequence=1:8", "--bucket", "1x8"), "--bucket cannot be given with --dim"),
        (("sequences", "--dim", "sequence=1:8", "--lanes", "2", "--registered"), "--lanes, --registered cannot be"),
        (("sequences", "--dim", "sequence=8:99"), "99"),
    ],
)
def test_what_cannot_be_measured_is_said(repository: Path, arguments: tuple[str, ...], message: str) -> None:
    command = ["bench", *arguments, "--repository", str(repository), "--duration", "0.05"]
    with pytest.raises(InvalidInput, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_mixed_lengths_go_through_the_queue(repository: Path) -> None:
    figures = orjson.loads(run(repository, "sequences", "--dim", "sequence=2:16", "--concurrency", "3", "--json"))
    assert figures["concurrency"] == 3
    assert figures["requests_per_s"] > 0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert "with 2 in flight" in run(repository, "sequences", "--dim", "sequence=2:16", "--concurrency", "2")


@pytest.mark.parametrize(
    "text", ["sequence", "sequence=8", "sequence=9:8", "sequence=0:8", "sequence=a:b", "sequence=1:"]
)
def test_a_range_has_two_sizes(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no range of sizes"):
        parse_lengths([text])


def test_ranges_by_dimension() -> None:
    assert parse_lengths(["width=8:512", "height=4:4"]) == {"width": (8, 512), "height": (4, 4)}
