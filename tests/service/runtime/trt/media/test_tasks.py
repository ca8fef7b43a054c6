"""Which models get kernels, and what is said where one does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.compile import Toolchain
from service.buckets import Bucket
from service.cards import DetectCard, Interpolation, ModelCard, Pooling, PoolingCard, PreprocessCard, Resize
from service.errors import DeviceError, ModelLoadFailed
from service.models import ModelSpec, build_spec
from service.runtime.cuda.device import Cuda
from service.runtime.trt.media.form import MAX_MEDIA_BYTES, LoadedTask
from service.runtime.trt.media.tasks import load_device_task
from service.runtime.trt.profiles import BucketShapes
from service.tensors import DType, TensorSpec
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_driver import FakeDriver
from tests.service.pipeline.classifiers import image_tensor, make_spec
from tests.service.pipeline.tokenizers_and_models import text_spec

TOOLCHAIN = Toolchain("13.0", lambda text, architecture: b"cubin")


def load(spec: ModelSpec, cache: Path, **found: Callable[[], Any]) -> LoadedTask | None:
    shapes = [BucketShapes(bucket, 0, (), ()) for bucket in spec.buckets.known()]
    machine = {"find_toolchain": lambda: TOOLCHAIN, "find_driver": FakeDriver, **found}
    return load_device_task(Cuda(FakeCuda()), spec, shapes, cache=cache, **machine)


def detector(dims: tuple[Any, ...] = ("n", 6, 100), dtype: DType = DType.FP32, **card: Any) -> ModelSpec:
    return build_spec(
        ModelCard(name="boxes", task="detect", detect=DetectCard(**card)),
        version="1",
        platform="tensorrt_plan",
        inputs=(image_tensor(),),
        outputs=(TensorSpec("candidates", dtype, dims),),
    )


def classifier_of(preprocess: PreprocessCard, batch_sizes: tuple[int, ...]) -> ModelSpec:
    return build_spec(
        ModelCard(name="shapes", task="classify", preprocess=preprocess, bucket_sizes={"batch": batch_sizes}),
        version="1",
        platform="tensorrt_plan",
        inputs=(image_tensor(),),
        outputs=(TensorSpec("scores", DType.FP32, ("n", 4)),),
    )


def test_a_classifier_is_asked_for_its_best_classes(tmp_path: Path) -> None:
    loaded = load(make_spec(), tmp_path)
    assert loaded is not None
    form = loaded.task.form
    assert [(tensor.name, tensor.dims) for tensor in form.outputs] == [
        ("scores", ("batch", 4)),
        ("classes", ("batch", 4)),
    ]
    assert form.batch_sizes == (1, 2, 4, 8, 16, 32)
    assert form.max_row_bytes == 1920 * 1088 * 3 + 64
    assert loaded.task.sources == ("preprocess", "classify")
    loaded.kernels.close()


def test_batches_whose_images_would_take_too_much_are_not_formed(tmp_path: Path) -> None:
    spec = make_spec(preprocess=PreprocessCard(device_image_pixels=MAX_MEDIA_BYTES // 3 // 4))
    loaded = load(spec, tmp_path)
    assert loaded is not None
    assert loaded.task.form.batch_sizes == (1, 2)
    loaded.kernels.close()


@pytest.mark.parametrize(("most", "boxes"), [(300, 300), (10_000, 1024)])
def test_a_detector_answers_as_many_boxes_as_its_card_and_its_kernels_allow(
    tmp_path: Path, most: int, boxes: int
) -> None:
    loaded = load(detector(max_detections=most), tmp_path)
    assert loaded is not None
    assert [tensor.dims for tensor in loaded.task.form.outputs] == [
        ("batch", 2),
        ("batch", boxes, 4),
        ("batch", boxes),
        ("batch", boxes),
    ]
    loaded.kernels.close()


def test_an_embedder_brings_what_counts_beside_its_tokens(tmp_path: Path) -> None:
    loaded = load(text_spec(), tmp_path)
    assert loaded is not None
    form = loaded.task.form
    assert [tensor.name for tensor in form.inputs] == ["input_ids", "attention_mask", "counted"]
    assert form.max_row_bytes == 8 * (8 + 8 + 4)
    ((ids, mask, counted),) = form.example(3, (4,))
    assert ids.shape == mask.shape == counted.shape == (3, 4)
    assert counted[:, 0].all()
    loaded.kernels.close()


def test_examples_are_images_that_differ_and_fit(tmp_path: Path) -> None:
    loaded = load(make_spec(preprocess=PreprocessCard(device_image_pixels=500)), tmp_path)
    assert loaded is not None
    examples = loaded.task.form.example(7, ())
    assert len({pixels.tobytes() for pixels, _ in examples}) == 7
    assert max(pixels.nbytes + descriptor.nbytes for pixels, descriptor in examples) <= loaded.task.form.max_row_bytes
    for one, other in zip(examples, loaded.task.form.example(7, ()), strict=True):
        assert one[0].tobytes() == other[0].tobytes()
    loaded.kernels.close()


@pytest.mark.parametrize("pixels", [1, 2, 3])
def test_examples_exist_whatever_the_limit(tmp_path: Path, pixels: int) -> None:
    loaded = load(make_spec(preprocess=PreprocessCard(device_image_pixels=pixels)), tmp_path)
    assert loaded is not None
    assert len(loaded.task.form.example(4, ())) == 4
    loaded.kernels.close()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (make_spec(preprocess=PreprocessCard(interpolation=Interpolation.AREA)), "interpolation is 'area', the kernel"),
        (make_spec(inputs=(image_tensor(dtype=DType.UINT8),)), r"UINT8 \[batch, 3, height, width\], the kernel writes"),
        (make_spec(inputs=(image_tensor(("n", 24, 32, 3)),)), r"FP32 \[batch, height, width, 3\], the kernel writes"),
        (make_spec(inputs=(image_tensor(("n", 3, 16385, 8)),)), "16385 x 8 pixels"),
        (
            make_spec(preprocess=PreprocessCard(resize=Resize.SHORTEST_SIDE_CROP, shortest_side=8193)),
            "shortest_side in .* is 8193; the kernel scales to at most 16384",
        ),
        (make_spec(outputs=(TensorSpec("scores", DType.FP64, ("n", 4)),)), "the scores are FP64"),
        (make_spec(outputs=(TensorSpec("scores", DType.FP32, ("n", "classes")),)), "dynamic dimension 'classes'"),
        (detector(("n", 100, 6), DType.FP64), "the boxes are FP64"),
        (detector(("n", 4 + 4097, 10_000)), "10000 candidates of 4097 classes, the kernels take at most"),
        (detector(("n", 6, (1 << 20) + 1)), "1048577 candidates"),
        (text_spec(output=TensorSpec("hidden", DType.FP64, ("n", "sequence", 2))), "are FP64 of size 2"),
        (text_spec(sizes=None), "sequence have no sizes in .buckets."),
        (
            classifier_of(PreprocessCard(device_image_pixels=1 << 26), (2, 4)),
            r"the smallest batch has 2 rows of \d+ bytes, and 268435456 bytes are there",
        ),
    ],
)
def test_models_that_the_kernels_do_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: ModelSpec, words: str
) -> None:
    assert load(spec, tmp_path, find_driver=lambda: pytest.fail("nothing is loaded")) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert 'kernels = "off"' in record.getMessage()
    assert record.getMessage().startswith(f"model '{spec.name}': task '{spec.card.task}' runs on the host: ")
    assert re.search(words, record.getMessage())


def test_outputs_whose_sizes_depend_on_the_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = make_spec(max_batch_size=1)
    shapes = [BucketShapes(Bucket(1), 0, ((1, 3, 24, 32),), ((-1, 4),))]
    assert load_device_task(Cuda(FakeCuda()), spec, shapes, cache=tmp_path) is None
    assert "sizes depend on the data" in caplog.text


@pytest.mark.parametrize(
    "spec",
    [
        text_spec(pooling=PoolingCard(mode=Pooling.FIRST)),
        text_spec(output=TensorSpec("vectors", DType.FP32, ("n", 2))),
        make_spec(task="tensor"),
    ],
)
def test_where_kernels_would_gain_nothing_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spec: ModelSpec
) -> None:
    assert load(spec, tmp_path) is None
    assert caplog.text == ""


def test_kernels_can_be_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = build_spec(
        ModelCard(name="shapes", task="classify", kernels_enabled=False),
        version="1",
        platform="tensorrt_plan",
        inputs=(image_tensor(),),
        outputs=(TensorSpec("scores", DType.FP32, ("n", 4)),),
    )
    assert load(spec, tmp_path) is None
    assert caplog.text == ""


def fails(error: Exception) -> Callable[[], Any]:
    def find() -> Any:
        raise error

    return find


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"find_toolchain": fails(ModelLoadFailed("CUDA kernels cannot be compiled: install"))}, "cannot be compiled"),
        ({"find_driver": fails(ModelLoadFailed("cuda-bindings does not load"))}, "cuda-bindings does not load"),
        ({"find_driver": fails(RuntimeError("Function cuLibraryLoadData not found"))}, "update it to one for CUDA 12"),
        ({"find_driver": fails(DeviceError("out of memory"))}, "out of memory"),
    ],
)
def test_machines_that_cannot_run_kernels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, found: dict[str, Callable[[], Any]], words: str
) -> None:
    assert load(make_spec(), tmp_path, **found) is None
    assert "model 'shapes': task 'classify' runs on the host, which is slower: " in caplog.text
    assert words in caplog.text


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(Path, "expanduser", lambda self: fails(RuntimeError("no home"))())
    assert load(make_spec(), Path("~/cache")) is None
    assert "this user has no home; set INFERLANE_KERNEL_CACHE" in caplog.text


def test_a_lost_device_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="illegal address"):
        load(make_spec(), tmp_path, find_driver=fails(DeviceError("illegal address", is_sticky=True)))


def test_a_model_that_does_not_fit_its_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match="needs exactly one output"):
        load(make_spec(outputs=(TensorSpec("scores", DType.INT32, ("n", 4)),)), tmp_path)
