"""Model specifications that the pipeline's tests hold images against."""

from __future__ import annotations

from service.cards import BatchingCard, ModelCard, PreprocessCard
from service.models import ModelSpec, build_spec
from service.tensors import Dim, DType, TensorSpec


def make_spec(
    *,
    inputs: tuple[TensorSpec, ...] | None = None,
    outputs: tuple[TensorSpec, ...] | None = None,
    preprocess: PreprocessCard | None = None,
    labels: tuple[str, ...] = (),
    task: str = "classify",
    max_batch_size: int | None = None,
) -> ModelSpec:
    """A classifier of 4 classes and images of 24 x 32, but for what the arguments say."""
    card = ModelCard(
        name="shapes",
        task=task,
        labels=labels,
        batching=BatchingCard(max_batch_size=max_batch_size),
        preprocess=preprocess or PreprocessCard(),
    )
    return build_spec(
        card,
        version="7",
        platform="onnxruntime_onnx",
        inputs=inputs or (image_tensor(),),
        outputs=outputs or (TensorSpec("scores", DType.FP32, ("n", 4)),),
    )


def image_tensor(dims: tuple[Dim, ...] = ("n", 3, 24, 32), dtype: DType = DType.FP32) -> TensorSpec:
    return TensorSpec("image", dtype, dims)
