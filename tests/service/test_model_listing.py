"""What `inferlane models` says: of every model, even of those that cannot be served."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from rich.console import Console

from service.errors import ModelLoadFailed
from service.model_listing import MAX_BUCKETS_SHOWN, ModelListing, list_models, render, to_dicts
from service.models import ONNX_PLATFORM, TENSORRT_PLATFORM
from tests.doubles import onnx_models
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_media_spec, make_spec
from tests.doubles.running_server import add_model


def write_rubbish(path: Path) -> Path:
    path.write_bytes(b"no model")
    return path


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelListing]:
    repository = tmp_path_factory.mktemp("repository")
    add_model(repository, "classifier", onnx_models.make_cnn, 'task = "classify"\n[batching]\nmax_batch_size = 4\n')
    add_model(repository, "encoder", onnx_models.make_sequence, "[batching]\nmax_batch_size = 2\n[lanes]\ncount = 3\n")
    add_model(repository, "bad-card", onnx_models.make_identity, "[batchng]\n")
    add_model(repository, "bad-file", write_rubbish)
    add_model(repository, "bad-task", onnx_models.make_simple, 'task = "classify"\n')
    add_model(repository, "wants-tensorrt", onnx_models.make_identity, 'backend = "tensorrt"\n')
    add_model(
        repository,
        "sequences",
        onnx_models.make_sequence,
        "[batching]\nmax_batch_size = 8\n[buckets]\nsequence = [8, 16, 32, 64]\n",
    )
    (repository / "empty" / "1").mkdir(parents=True)
    (repository / "pair").mkdir()
    (repository / "pair" / "model.toml").write_text(
        'task = "ocr"\n[ocr]\ndetector = "classifier"\nrecognizer = "encoder"\n'
    )
    (repository / "card-alone").mkdir()
    (repository / "card-alone" / "model.toml").write_text('task = "classify"\n')
    (repository / "notes").mkdir()
    found = list_models(repository, cpu_threads=2, max_image_pixels=1000)
    assert [listing.name for listing in found] == sorted(listing.name for listing in found)
    return {listing.name: listing for listing in found}


def test_every_model_is_listed(listings: dict[str, ModelListing]) -> None:
    assert set(listings) == {
        "bad-card",
        "bad-file",
        "bad-task",
        "card-alone",
        "classifier",
        "empty",
        "encoder",
        "pair",
        "sequences",
        "wants-tensorrt",
    }
    assert {name for name, listing in listings.items() if not listing.error} == {
        "classifier",
        "encoder",
        "pair",
        "sequences",
    }


def test_a_composed_model_names_its_members(listings: dict[str, ModelListing]) -> None:
    assert listings["pair"] == ModelListing(
        name="pair",
        version="1",
        platform="ensemble",
        task="ocr",
        inputs=("detector: classifier", "recognizer: encoder"),
    )
    (lanes,) = render((listings["pair"],)).columns[-1].cells
    assert lanes == "-"


def test_a_good_model_among_broken_ones(listings: dict[str, ModelListing]) -> None:
    assert listings["classifier"] == ModelListing(
        name="classifier",
        version="1",
        platform="onnxruntime_onnx",
        task="classify",
        inputs=("image UINT8 [batch, 3, 64, 64]",),
        outputs=("logits FP32 [batch, 10]",),
        buckets=("4", "2", "1"),
        lanes=1,
    )
    assert listings["encoder"].exact_dims == ("sequence",)
    assert listings["encoder"].buckets == ()
    assert listings["encoder"].lanes == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bad-card", "batchng"),
        ("bad-file", "cannot load the model"),
        ("bad-task", "classify"),
        ("empty", "holds neither model.onnx"),
        ("card-alone", "holds neither model.onnx"),
        ("wants-tensorrt", "asks for TensorRT"),
    ],
)
def test_a_broken_model_says_why(listings: dict[str, ModelListing], name: str, says: str) -> None:
    assert says in listings[name].error
    assert listings[name].inputs == ()


def test_a_repository_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="cannot be read"):
        list_models(tmp_path / "absent", cpu_threads=1, max_image_pixels=1)
    assert list_models(tmp_path, cpu_threads=1, max_image_pixels=1) == ()


def test_listings_are_json(listings: dict[str, ModelListing]) -> None:
    found = orjson.loads(orjson.dumps(to_dicts(tuple(listings.values()))))
    assert {entry["name"] for entry in found} == set(listings)
    assert all(set(entry) == set(ModelListing.__slots__) for entry in found)


def shown(*listings: ModelListing) -> str:
    console = Console(width=400, no_color=True)
    with console.capture() as captured:
        console.print(render(listings))
    return captured.get()


def test_the_table_shows_brackets_as_they_are(listings: dict[str, ModelListing]) -> None:
    text = shown(*listings.values())
    for listing in listings.values():
        assert listing.name in text
        assert listing.error in text
        assert all(tensor in text for tensor in (*listing.inputs, *listing.outputs))
    assert "exact sequence: not warmed" in text


@pytest.mark.parametrize(("platform", "backend"), [(ONNX_PLATFORM, "onnxruntime"), (TENSORRT_PLATFORM, "tensorrt")])
def test_the_table_names_the_backend_as_a_card_does(platform: str, backend: str) -> None:
    text = shown(ModelListing("m", platform=platform))
    assert f" {backend} " in text


@pytest.mark.parametrize(
    "error", ["got ['a'], expected [/b]", "pip install 'inferlane[cpu]'", "[red]x[/red]", ":bomb:"]
)
def test_errors_are_never_taken_for_markup(error: str) -> None:
    assert error in shown(ModelListing("m", error=error))


def test_long_lists_of_buckets_are_cut(listings: dict[str, ModelListing]) -> None:
    buckets = listings["sequences"].buckets
    assert len(buckets) == 16
    text = shown(listings["sequences"])
    assert f"{' '.join(buckets[:MAX_BUCKETS_SHOWN])} and 4 more" in text
    assert buckets[MAX_BUCKETS_SHOWN] not in text


def test_lanes_that_start_up_counts_are_said_to_be_so() -> None:
    assert "auto" in shown(ModelListing("m", lanes=None))
    assert "auto" not in shown(ModelListing("m", lanes=2))


def test_a_device_makes_the_lanes_count_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_model(tmp_path, "m", onnx_models.make_identity)
    backend = HeldBackend(make_spec(), clock=lambda: 0)
    backend.free_bytes = 1
    monkeypatch.setattr("service.model_listing.open_backend", lambda *_, **__: backend)
    (listing,) = list_models(tmp_path, cpu_threads=1, max_image_pixels=1)
    assert listing.lanes is None
    assert backend.is_closed


def test_buckets_of_media_have_a_line_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_model(tmp_path, "m", onnx_models.make_identity)
    widths = tuple(range(4, 24))
    backend = HeldBackend(make_media_spec(max_batch_size=1, dims={"width": widths}), clock=lambda: 0)
    monkeypatch.setattr("service.model_listing.open_backend", lambda *_, **__: backend)
    (listing,) = list_models(tmp_path, cpu_threads=1, max_image_pixels=1)
    assert listing.buckets == tuple(f"1x{width}" for width in reversed(widths))
    assert listing.media_buckets == tuple(f"1x{width}:media" for width in reversed(widths))
    assert shown(listing).count("and 8 more") == 2
