"""Small models of every task that has kernels, and a bench that opens and asks them, on a fake GPU or a real one.

The models are built by the builder of the TensorRT at hand, from ONNX that is made on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from engines.build import build_plan
from engines.request import BuildOptions, BuildRequest
from kernels.compile import Toolchain
from kernels.launch import DriverApi
from service.buckets import Bucket, Form
from service.models import ModelSpec
from service.pipeline.steps import Call, Outputs, Steps
from service.pipeline.task import Task, create_task
from service.repository.card import load_card
from service.requests import Batch, InferenceRequest, Stamps
from service.runtime.cuda.device import Cuda
from service.runtime.trt.backend import TensorRTBackend
from service.runtime.trt.device_kernels import load_fills
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.lane import TensorRTLane
from service.runtime.trt.media.tasks import load_device_task
from tests.doubles.onnx_models import _save, _value, make_sequence
from tests.service.pipeline.tokenizers_and_models import tokenizer_json

HEIGHT, WIDTH = 24, 32
CLASSES = 20
CELL = 8

CARDS = {
    "seer": 'task = "classify"\n[buckets]\nbatch = [1, 4]\n[preprocess]\ndevice_image_pixels = 10000\n',
    "finder8": 'task = "detect"\n[buckets]\nbatch = [1, 4]\n[preprocess]\nresize = "letterbox"\n'
    "device_image_pixels = 10000\n",
    "speaker": 'task = "embed"\n[text]\ntokenizer = "tokenizer.json"\n[buckets]\nbatch = [1, 2, 4]\nsequence = [4, 8]\n'
    '[pooling]\noutput = "tokens"\n',
}
CARDS["finder5"] = CARDS["finder8"]
CARDS["named-finder"] = CARDS["finder8"].replace("[preprocess]", "height = [64]\nwidth = [96]\n[preprocess]")
CARDS["fragile-seer"] = CARDS["seer"]
CARDS["fragile-finder"] = CARDS["finder8"]
CARDS["half-seer"] = CARDS["seer"]


def make_seer(path: Path, *, is_fragile: bool = False, element_type: int = TensorProto.FLOAT) -> Path:
    """A classifier: `image: [batch, 3, 24, 32] -> logits: [batch, 20]`; a fragile one gives NaN for a dark image."""
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    rng = np.random.default_rng(5)
    weights = {
        "w1": (rng.standard_normal((8, 3, 3, 3)) * 0.4).astype(dtype),
        "w2": (rng.standard_normal((8, CLASSES)) * 2).astype(dtype),
        "half": np.asarray(0.4, dtype),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["conv"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("MatMul", ["features", "w2"], ["seen" if is_fragile else "logits"]),
    ]
    if is_fragile:
        nodes += [
            helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
            helper.make_node("Unsqueeze", ["mean", "last"], ["column"]),
            helper.make_node("Sub", ["column", "half"], ["light"]),
            helper.make_node("Sqrt", ["light"], ["root"]),
            helper.make_node("Mul", ["seen", "root"], ["logits"]),
        ]
        weights["last"] = np.int64([1])  # type: ignore[assignment]
    image = _value("image", element_type, ("batch", 3, HEIGHT, WIDTH))
    return _save(path, nodes, [image], [_value("logits", element_type, ("batch", CLASSES))], weights)


def make_finder(path: Path, *, is_v8: bool = True, is_fragile: bool = False, is_dynamic: bool = False) -> Path:
    """A YOLO head of 3 classes on `images: FP32[batch, 3, 64, 96]`: a candidate for each of 8 x 12 cells.

    Every number of a candidate follows from its cell's mean colour. A fragile one gives NaN for a dark image, a dynamic
    one leaves height and width open.
    """
    height, width = 64, 96
    columns = 7 if is_v8 else 8
    rng = np.random.default_rng(6)
    scale = np.float32([width, height, 40, 30, *[1] * (columns - 4)]).reshape(1, columns, 1)
    weights = {
        "w": (rng.standard_normal((columns, 3, 1, 1)) * 6).astype(np.float32),
        "b": (rng.standard_normal(columns) - 1).astype(np.float32),
        "scale": scale,
        "shape": np.int64([0, columns, -1]),
        "half": np.float32(0.4),
        "axes": np.int64([1, 2]),
    }
    nodes = [
        helper.make_node("AveragePool", ["images"], ["cells"], kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
        helper.make_node("Conv", ["cells", "w", "b"], ["conv"]),
        helper.make_node("Sigmoid", ["conv"], ["sigmoid"]),
        helper.make_node("Reshape", ["sigmoid", "shape"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["scaled"]),
    ]
    last = "scaled"
    if is_fragile:
        nodes += [
            helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=0),
            helper.make_node("Unsqueeze", ["mean", "axes"], ["column"]),
            helper.make_node("Sub", ["column", "half"], ["light"]),
            helper.make_node("Sqrt", ["light"], ["root"]),
            helper.make_node("Mul", ["scaled", "root"], ["rooted"]),
        ]
        last = "rooted"
    anchors = "anchors" if is_dynamic else height // CELL * (width // CELL)
    dims = ("batch", columns, anchors) if is_v8 else ("batch", anchors, columns)
    turn = {"perm": [0, 1, 2] if is_v8 else [0, 2, 1]}
    nodes.append(helper.make_node("Transpose", [last], ["candidates"], **turn))
    sides = ("height", "width") if is_dynamic else (height, width)
    images = _value("images", TensorProto.FLOAT, ("batch", 3, *sides))
    return _save(path, nodes, [images], [_value("candidates", TensorProto.FLOAT, dims)], weights)


MAKERS: dict[str, Callable[[Path], Path]] = {
    "seer": make_seer,
    "half-seer": partial(make_seer, element_type=TensorProto.FLOAT16),
    "fragile-seer": partial(make_seer, is_fragile=True),
    "finder8": make_finder,
    "named-finder": partial(make_finder, is_dynamic=True),
    "finder5": partial(make_finder, is_v8=False),
    "fragile-finder": partial(make_finder, is_fragile=True),
    "speaker": make_sequence,
}


def write_model(folder: Path, name: str, card: str) -> None:
    """A model's folder with a version 1, without a plan."""
    (folder / "1").mkdir(parents=True, exist_ok=True)
    MAKERS[name](folder / "1" / "model.onnx")
    (folder / "model.toml").write_text(card)
    (folder / "tokenizer.json").write_bytes(tokenizer_json())


@dataclass
class MediaBench:
    """Builds, opens and asks models, and closes them.

    Attributes:
        cuda, flavour, find_driver, find_toolchain: real or fake.
        folder: for cards and compiled kernels.
        plans: for plans, each built once.
    """

    cuda: Cuda
    flavour: Flavour
    find_driver: Callable[[], DriverApi]
    find_toolchain: Callable[[], Toolchain]
    folder: Path
    plans: Path
    lanes: list[TensorRTLane] = field(default_factory=list)
    backends: list[TensorRTBackend] = field(default_factory=list)

    def plan(self, name: str) -> Path:
        """The plan of one of `MAKERS`."""
        folder = self.plans / name
        path = folder / "1" / "model.plan"
        if not path.exists():
            write_model(folder, name, CARDS[name])
            request = BuildRequest(
                model_folder=folder, version="1", plan_path=path, options=BuildOptions(optimization_level=0)
            )
            build_plan(request, flavour=self.flavour, cuda=self.cuda, on_event=lambda event: None)
        return path

    def open(self, name: str, more: str = "", *, top: str = "") -> TensorRTBackend:
        """A model with its kernels; `more` is added to its card, `top` before all of it."""
        plan = self.plan(name)
        folder = self.folder / name
        write_model(folder, name, top + CARDS[name] + more)
        backend = TensorRTBackend.open(
            load_card(folder), version="1", plan_path=plan, flavour=self.flavour, cuda=self.cuda
        )
        self.backends.append(backend)
        machine = {
            "cache": self.folder / "cache",
            "find_driver": self.find_driver,
            "find_toolchain": self.find_toolchain,
        }
        backend.load_task(partial(load_device_task, **machine))
        backend.load_fills(partial(load_fills, **machine))
        return backend

    def lane(self, backend: TensorRTBackend) -> TensorRTLane:
        """A lane that is warm in every bucket."""
        lane = backend.create_lane(len(self.lanes))
        self.lanes.append(lane)
        for bucket in backend.spec.buckets.known():
            lane.warm_up(bucket)
        return lane

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        for backend in self.backends:
            backend.close()


def tasks(spec: ModelSpec) -> tuple[Any, Any]:
    """A model's task by way of the device, and the same by way of the host."""
    return _task(spec), _task(replace(spec, media=None))


def _task(spec: ModelSpec) -> Task:
    task = create_task(spec, max_image_pixels=10**8)
    assert task is not None
    return task


def request_of_call(spec: ModelSpec, call: Call) -> InferenceRequest:
    """As the server makes it."""
    wanted = spec.outputs
    if call.form is Form.MEDIA:
        assert spec.media is not None
        wanted = spec.media.outputs
    outputs = tuple(range(len(wanted))) if call.outputs is None else call.outputs
    return InferenceRequest(
        inputs=call.inputs,
        rows=call.rows,
        dims=call.dims,
        outputs=outputs,
        priority=1,
        deadline_ns=0,
        nbytes=call.nbytes,
        stamps=Stamps(0),
        form=call.form,
    )


def batch_of(spec: ModelSpec, calls: Sequence[Call]) -> Batch:
    """Calls of one home in the smallest bucket that holds them."""
    requests = tuple(request_of_call(spec, call) for call in calls)
    size = sum(request.rows for request in requests)
    home = spec.buckets.home(size, tuple(map(max, zip(*(call.dims for call in calls), strict=True))), calls[0].form)
    assert home is not None
    padded = spec.buckets.served_size(size, home)
    assert padded is not None
    return Batch(Bucket(padded, *home), requests, size)


def run_calls_together(lane: TensorRTLane, spec: ModelSpec, calls: Sequence[Call]) -> list[Outputs]:
    """The outputs of calls, those of media in one batch, as far as one holds them."""
    outputs: dict[int, Outputs] = {}
    is_alike = {call.dims for call in calls} == {calls[0].dims}
    media = [index for index, call in enumerate(calls) if call.form is Form.MEDIA and call.rows == 1 and is_alike]
    most = spec.media.batch_sizes[-1] if spec.media is not None else 1
    groups = [media[first : first + most] for first in range(0, len(media), most)]
    groups += [[index] for index in range(len(calls)) if index not in media]
    for group in groups:
        batch = batch_of(spec, [calls[index] for index in group])
        outputs.update(zip(group, lane.sync(lane.enqueue(batch)).outputs, strict=True))
    return [outputs[index] for index in range(len(calls))]


def answered(lane: TensorRTLane, spec: ModelSpec, steps: Steps) -> tuple[Any, list[Form]]:
    """What a task answers, and the forms of its calls."""
    forms: list[Form] = []
    try:
        step = next(steps)
        while True:
            forms += [call.form for call in step.calls]
            step = steps.send(tuple(run_calls_together(lane, spec, step.calls)))
    except StopIteration as done:
        return done.value, forms
