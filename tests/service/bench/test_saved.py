"""Recordings as files: what is written is read, trtexec's files too, and everything else is refused with a way out."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.bench import saved
from service.bench.recording import BATCH, Origin, Place, PlaceKind, Recording
from service.bench.trtexec import BLOCKS, in_blocks, is_profile, is_times, read_times, times_document
from service.errors import InvalidInput
from service.requests import BatchTimings

STAGE, LAYER = PlaceKind.STAGE, PlaceKind.LAYER
ORIGIN = Origin(
    model="m/1",
    machine={"processor": "some"},
    versions={"python": "3.11"},
    digests={"model.toml": "00"},
    load={"lanes": "1"},
)

PROFILE = [
    {"count": 100},
    {"name": "conv", "timeMs": 20.0, "averageMs": 0.2, "medianMs": 0.19, "percentage": 50.0},
    {"name": "conv", "timeMs": 10.0, "averageMs": 0.1, "percentage": 25.0},
    {"name": "nothing", "timeMs": 0.0, "averageMs": 0.0, "percentage": 0.0},
]
TIMES = [
    {"startEnqMs": 0.0, "endEnqMs": 0.1, "h2dMs": 0.5, "computeMs": 2.0 + step, "d2hMs": 0.0, "latencyMs": 2.5 + step}
    for step in range(3)
]


@settings(max_examples=25)
@given(
    series=st.dictionaries(
        st.builds(Place, st.text(max_size=8), st.sampled_from(PlaceKind), st.text(max_size=8)),
        st.lists(
            st.lists(st.floats(min_value=1e-3, max_value=1e15), min_size=1, max_size=3).map(tuple),
            min_size=1,
            max_size=3,
        ).map(tuple),
        max_size=4,
    )
)
def test_what_is_written_is_read(
    series: dict[Place, tuple[tuple[float, ...], ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("saved") / "run.json"
    saved.write(Recording(series, ORIGIN), path)
    assert saved.read(path, "") == Recording(series, ORIGIN)


def write(folder: Path, content: object) -> Path:
    path = folder / "file.json"
    path.write_bytes(orjson.dumps(content))
    return path


def test_a_profile_of_trtexec_has_one_value_per_layer(tmp_path: Path) -> None:
    recording = saved.read(write(tmp_path, PROFILE), "8")
    assert recording.origin is None
    assert {place: rounds[0][0] for place, rounds in recording.series.items()} == {
        Place("8", LAYER, "conv"): pytest.approx(190e3),
        Place("8", LAYER, "conv #2"): pytest.approx(100e3),
    }


def test_times_of_trtexec_are_cut_into_rounds_and_copies_that_were_left_out_stay_out(tmp_path: Path) -> None:
    series = saved.read(write(tmp_path, TIMES), "8").series
    assert {place.name for place in series} == {"enqueue", "h2d", "compute", BATCH}
    assert series[Place("8", STAGE, "compute")] == ((2e6,), (3e6,), (4e6,))
    assert series[Place("8", STAGE, "enqueue")][0][0] == pytest.approx(1e5)


@given(st.lists(st.floats(1.0, 1e9), min_size=1, max_size=200))
def test_blocks_keep_every_batch_in_order(samples_ns: list[float]) -> None:
    blocks = in_blocks(samples_ns)
    assert [sample for block in blocks for sample in block] == samples_ns
    assert len(blocks) == min(BLOCKS, len(samples_ns))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_exported_times_are_read_back() -> None:
    batches = [(BatchTimings(1000 * n, 1000 * n + 100, 1000 * n + 700, 1000 * n + 900), 50) for n in range(1, 4)]
    document = times_document(batches)
    assert is_times(document)
    assert not is_profile(document)
    assert document[0]["startEnqMs"] == 0.0
    assert document[2]["endD2hMs"] == pytest.approx(0.0029)
    series = read_times(document, "8").series
    got = {place.name: rounds[0][0] for place, rounds in series.items()}
    assert got == pytest.approx({"h2d": 100.0, "compute": 600.0, "d2h": 200.0, BATCH: 900.0, "enqueue": 50.0})


OWN = {"schema": saved.SCHEMA, "origin": {"model": "m", "machine": {}, "versions": {}, "digests": {}, "load": {}}}


@pytest.mark.parametrize(
    ("content", "bucket", "message"),
    [
        ({"schema": "inferlane-bench/9"}, "", "'inferlane-bench/9', this version reads 'inferlane-bench/1'"),
        ({}, "", "has the schema None"),
        ({"schema": saved.SCHEMA}, "", "is no recording: KeyError: 'origin'"),
        ({**OWN, "series": [{"bucket": "1", "kind": "place", "name": "x", "rounds_ns": [[1]]}]}, "", "ValueError"),
        ({**OWN, "series": [{"bucket": "1", "kind": "stage", "name": "x", "rounds_ns": []}]}, "", "needs rounds"),
        ({**OWN, "series": [{"bucket": "1", "kind": "stage", "name": "x", "rounds_ns": [[]]}]}, "", "needs rounds"),
        ({**OWN, "series": [{"bucket": "1", "kind": "stage", "name": "x", "rounds_ns": [[0]]}]}, "", "needs rounds"),
        ({**OWN, "series": 3}, "", "TypeError"),
        ([], "8", "neither an object nor a list"),
        (3, "8", "neither an object nor a list"),
        ([{"name": "x"}], "8", "neither an object nor a list"),
        (PROFILE, "", "name it with one --bucket"),
        ([{"count": 1}, {"name": "x"}], "8", "KeyError"),
        ([{"computeMs": 1.0}], "8", "KeyError"),
    ],
)
def test_what_is_no_recording_is_refused(content: object, bucket: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        saved.read(write(tmp_path, content), bucket)


def test_files_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        saved.read(tmp_path / "absent.json", "")
    (tmp_path / "text").write_text("no json")
    with pytest.raises(InvalidInput, match="is no JSON"):
        saved.read(tmp_path / "text", "")
    with pytest.raises(InvalidInput, match="cannot be written: No such file"):
        saved.write_json([], tmp_path / "absent" / "file.json")
