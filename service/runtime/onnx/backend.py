"""ONNX Runtime on the CPU: the backend that runs everywhere, with the queues, buckets and lanes of every other."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from service.buckets import Bucket
from service.cards import LanesCard, ModelCard, PrecisionCard
from service.errors import ModelLoadFailed
from service.models import ONNX_PLATFORM, ModelSpec, build_spec
from service.runtime.onnx.lane import OnnxLane
from service.runtime.onnx.probe import OnnxLayerProbe
from service.runtime.onnx.runs import has_text
from service.runtime.onnx.session import input_tensors, open_session, output_tensors
from service.runtime.probe import Probe
from service.runtime.rows import input_plans, refuse_second_batch_axis
from service.tensors import DType, HostArray

logger = logging.getLogger(__name__)


class OnnxBackend:
    """One ONNX model on the CPU. Implements `runtime.protocol.Backend`."""

    def __init__(self, spec: ModelSpec, *, model_path: Path, lane_count: int, threads_per_lane: int) -> None:
        self._spec = spec
        self._model_path = model_path
        self._lane_count = lane_count
        self._threads_per_lane = threads_per_lane

    @classmethod
    def open(cls, card: ModelCard, *, version: str, model_path: Path, cpu_threads: int) -> OnnxBackend:
        """Reads the model's tensors and holds the card against them; keeps no session.

        Args:
            card: the model's card.
            version: the version's number.
            model_path: the ONNX file.
            cpu_threads: threads that all of the model's lanes share.

        Raises:
            ModelLoadFailed: ONNX Runtime is missing or refuses the model, or a tensor cannot be served.
            CardError: the card contradicts the model.
        """
        session = open_session(model_path, threads=1, is_optimized=False)
        spec = build_spec(
            card,
            version=version,
            platform=ONNX_PLATFORM,
            inputs=input_tensors(session),
            outputs=output_tensors(session),
        )
        _refuse_unservable(spec)
        refuse_second_batch_axis(spec)
        _warn_of_unused_keys(card)
        input_plans(spec)
        lane_count = card.lanes.count or 1
        threads = card.lanes.threads_per_lane or max(1, cpu_threads // lane_count)
        return cls(spec, model_path=model_path, lane_count=lane_count, threads_per_lane=threads)

    @property
    def spec(self) -> ModelSpec:
        """The model's tensors, buckets and limits."""
        return self._spec

    @property
    def lane_count(self) -> int:
        """As the card says, else one: its intra-op threads already use every core, so more lanes would only queue."""
        return self._lane_count

    @property
    def lane_depth(self) -> int:
        """One: rows are copied by the cores that compute, so there is nothing to overlap."""
        return 1

    @property
    def weights_bytes(self) -> int:
        """None: there is no device."""
        return 0

    def free_device_bytes(self) -> int | None:
        """None: there is no device."""
        return None

    def create_lane(self, lane_id: int) -> OnnxLane:
        """Opens the lane's own session, on the thread that will own it.

        Raises:
            ModelLoadFailed: the model cannot be loaded any more.
        """
        session = open_session(self._model_path, threads=self._threads_per_lane)
        return OnnxLane(session, self._spec, model_path=self._model_path)

    def profiles(self, bucket: Bucket) -> tuple[int, ...]:
        """None: ONNX Runtime runs every size alike."""
        return ()

    def create_probe(self, bucket: Bucket, *, profile: int | None = None) -> Probe | None:
        """None: there is no device."""
        return None

    def create_layer_probe(self, bucket: Bucket) -> OnnxLayerProbe:
        """Makes what times the model's nodes in one bucket, with a lane's threads."""
        return OnnxLayerProbe(self._model_path, self._spec, bucket, threads=self._threads_per_lane)

    def register(self, host: HostArray) -> AbstractContextManager[object]:
        """Nothing: there is no device."""
        return nullcontext()

    def close(self) -> None:
        """Nothing is shared by the lanes; idempotent."""


def _warn_of_unused_keys(card: ModelCard) -> None:
    unused = ["[precision]"] if card.precision != PrecisionCard() else []
    keys = ("device", "graph_memory_bytes", "completion")
    unused += [f"{key} in [lanes]" for key in keys if getattr(card.lanes, key) != getattr(LanesCard(), key)]
    if unused:
        logger.warning(
            "model '%s': its card sets %s, which ONNX Runtime does not use: it serves the model as it is, on the CPU",
            card.name,
            " and ".join(unused),
        )


def _refuse_unservable(spec: ModelSpec) -> None:
    """Raises ModelLoadFailed for what the model may contain but a lane cannot run."""
    if has_text(spec) and any(tensor.dtype is DType.BF16 for tensor in (*spec.inputs, *spec.outputs)):
        raise ModelLoadFailed(
            f"model '{spec.name}' has both BYTES and BF16 tensors, which ONNX Runtime's Python interface cannot "
            "pass together; cast the BF16 ones to FP32 inside the model"
        )
