"""Measures tasks on a GPU host to host through a lane: from pixels and words to meaning, by kernels and by the host.

    python -m tests.gpu.chains REPOSITORY OUT.json [NAME ...]

The repository holds models with plans; names are of models whose cards say classify, detect or embed, by default
`resnet50 yolov8s bert_base`. Images are of 1080p, texts of about 128 tokens. One core prepares and renders; what is
told is the median of `ROUNDS` batches. Prints a table, and writes the same as JSON. Needs a GPU.

Per batch, in microseconds:

    decode      JPEG bytes to pixels, or text to tokens, on the host
    prepare     what the host does after that: nothing but a descriptor by kernels, resize and normalise without
    h2d         gathering, the copy to the device, and waiting for the batch before
    device      the chain between the marks: kernels, engine, kernels; or the engine alone
    d2h         the outputs to the host, and out of pinned memory
    render      what the task makes of them
    graph, eager  the device's chain by itself, replayed as one graph and launched call by call (a probe's figures)
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cv2

from service.bench.drive import DrivenLanes
from service.bench.run import open_model
from service.buckets import Bucket
from service.errors import ServiceError
from service.machine import default_threads
from service.models import ModelSpec
from service.pipeline.decode import configure_opencv, decode_image
from service.pipeline.frames import RawImage
from service.pipeline.steps import Call, Outputs, Step
from service.requests import Batch
from service.runtime.protocol import Backend, Lane
from tests.doubles.media_models import request_of_call, tasks
from tests.service.pipeline.image_files import encode, noise, smooth

MODELS = ("resnet50", "yolov8s", "bert_base")
TASKS = ("classify", "detect", "embed")
IMAGE_BATCHES = (1, 8, 32)
TEXT_BATCHES = (8,)
TOKENS = 128
ROUNDS = 50
DRIVE_S = 1.0
PROBE_LAUNCHES = 200
JPEG_QUALITY = 90


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """One model, batch and way; microseconds per batch, but for `batches_per_s` of two in flight."""

    model: str
    bucket: str
    way: str
    decode_us: float
    prepare_us: float
    h2d_us: float
    device_us: float
    d2h_us: float
    lane_us: float
    render_us: float
    graph_us: float | None
    eager_us: float
    batches_per_s: float
    h2d_bytes: int
    d2h_bytes: int


@dataclass(frozen=True, slots=True)
class Material:
    """What is asked of a task, again and again.

    Attributes:
        decode: does what the host does in either way, and gives nothing.
        begin: starts the task's steps for every request of a batch.
    """

    decode: Callable[[], object]
    begin: Callable[[Any], list[Any]]


def main(arguments: Sequence[str]) -> None:
    configure_opencv()
    repository, out, *names = arguments
    figures: list[ChainFigures] = []
    for name in names or MODELS:
        if not (Path(repository) / name).is_dir():
            sys.stdout.write(f"{name}: not in {repository}, left out\n")
            continue
        try:
            with closing(open_model(Path(repository), name, cpu_threads=default_threads())) as backend:
                figures += measured(backend)
        except ServiceError as error:
            sys.stdout.write(f"{name}: {error.message}\n")
        Path(out).write_text(json.dumps([asdict(each) for each in figures], indent=1) + "\n")
    sys.stdout.write(table(figures))


def measured(backend: Backend) -> list[ChainFigures]:
    """Both ways of a model, batch by batch; the device's own first."""
    spec = backend.spec
    if spec.card.task not in TASKS:
        sys.stdout.write(f"{spec.name}: its card names none of the tasks {', '.join(TASKS)}, left out\n")
        return []
    if spec.media is None:
        sys.stdout.write(f"{spec.name}: has no kernels here; its log says why\n")
    figures = []
    for rows in TEXT_BATCHES if spec.card.task == "embed" else IMAGE_BATCHES:
        material = of_texts(spec, rows) if spec.card.task == "embed" else of_images(rows)
        for way, task in zip(("device", "host"), tasks(spec), strict=True):
            sizes = spec.media.batch_sizes if spec.media is not None and way == "device" else spec.buckets.batch_sizes
            if rows > sizes[-1] or (way == "device" and spec.media is None):
                continue
            figures.append(measured_way(backend, rows, way, task, material))
            sys.stdout.write(table(figures[-1:]))
    return figures


def of_images(rows: int) -> Material:
    image = cv2.addWeighted(smooth(1080, 1920), 0.8, noise(1080, 1920), 0.2, 0)
    file = encode(".jpg", image, cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY)
    frame = RawImage.from_rgb(decode_image(file, max_pixels=10**8))
    return Material(
        decode=lambda: [decode_image(file, max_pixels=10**8) for _ in range(rows)],
        begin=lambda task: [task.frame_steps(frame, {}) for _ in range(rows)],
    )


def of_texts(spec: ModelSpec, rows: int) -> Material:
    texts = [" ".join(f"word{index % 97} of text {row}" for index in range(TOKENS)) for row in range(rows)]
    body = json.dumps({"text": texts}).encode()
    tokenizer = tasks(spec)[1].tokenizer
    return Material(decode=lambda: tokenizer.rows(texts), begin=lambda task: [task.steps(body, "application/json", {})])


def measured_way(backend: Backend, rows: int, way: str, task: Any, material: Material) -> ChainFigures:
    spec = backend.spec
    calls, prepare_us = prepared(task, material)
    batch = joined(spec, calls)
    with closing(backend.create_lane(0)) as lane:
        lane.warm_up(batch.bucket)
        before = lane.figures()
        stages = [staged(lane, batch) for _ in range(ROUNDS)]
        after = lane.figures()
        outputs = lane.sync(lane.enqueue(batch)).outputs
    with closing(DrivenLanes(backend, 1)) as lanes:
        lanes.start(lambda each: each.warm_up(batch.bucket))
        batches_per_s = lanes.drive((batch,) * 4, DRIVE_S).batches_per_s
    graph_us, eager_us = probed(backend, batch.bucket)
    h2d_us, device_us, d2h_us, lane_us = (statistics.median(column) for column in zip(*stages, strict=True))
    return ChainFigures(
        model=spec.name,
        bucket=batch.bucket.label,
        way=way,
        decode_us=timed_us(material.decode),
        prepare_us=prepare_us,
        h2d_us=h2d_us,
        device_us=device_us,
        d2h_us=d2h_us,
        lane_us=lane_us,
        render_us=rendered_us(task, material, outputs),
        graph_us=graph_us,
        eager_us=eager_us,
        batches_per_s=batches_per_s,
        h2d_bytes=(after.h2d_bytes - before.h2d_bytes) // ROUNDS,
        d2h_bytes=(after.d2h_bytes - before.d2h_bytes) // ROUNDS,
    )


def prepared(task: Any, material: Material) -> tuple[list[Call], float]:
    """The calls of a batch's requests, and how long the host needed for them once everything was decoded.

    Tokenizing cannot be left out of a text task's steps, so that its time holds both.
    """
    calls: list[Call] = []
    durations = []
    for _ in range(ROUNDS // 5):
        requests = material.begin(task)
        began = time.perf_counter_ns()
        steps: list[Step] = [next(request) for request in requests]
        durations.append((time.perf_counter_ns() - began) / 1e3)
        calls = [call for step in steps for call in step.calls]
    return calls, statistics.median(durations)


def joined(spec: ModelSpec, calls: Sequence[Call]) -> Batch:
    """All calls in one batch; they have the same dims."""
    size = sum(call.rows for call in calls)
    home = spec.buckets.home(size, calls[0].dims, calls[0].form)
    assert home is not None, f"{spec.name} does not serve {size} rows as {calls[0].form.name}"
    padded = spec.buckets.served_size(size, home)
    assert padded is not None
    return Batch(Bucket(padded, *home), tuple(request_of_call(spec, call) for call in calls), size)


def staged(lane: Lane, batch: Batch) -> tuple[float, float, float, float]:
    """One batch alone: h2d, device, d2h, and all of it, in microseconds."""
    began = time.monotonic_ns()
    timings = lane.sync(lane.enqueue(batch)).timings
    total_ns = time.monotonic_ns() - began
    stages = (
        timings.copied_in - timings.started,
        timings.computed - timings.copied_in,
        timings.copied_out - timings.computed,
        total_ns,
    )
    h2d, device, d2h, total = (ns / 1e3 for ns in stages)
    return h2d, device, d2h, total


def rendered_us(task: Any, material: Material, outputs: Sequence[Outputs]) -> float:
    durations = []
    for _ in range(ROUNDS // 5):
        requests = material.begin(task)
        counts = [len(next(request).calls) for request in requests]
        own = iter(outputs)
        shares = [tuple(next(own) for _ in range(count)) for count in counts]
        began = time.perf_counter_ns()
        for request, share in zip(requests, shares, strict=True):
            try:
                request.send(share)
            except StopIteration:
                continue
            raise AssertionError("the task has further steps")
        durations.append((time.perf_counter_ns() - began) / 1e3)
    return statistics.median(durations)


def probed(backend: Backend, bucket: Bucket) -> tuple[float | None, float]:
    probe = backend.create_probe(bucket)
    assert probe is not None, "a probe needs a GPU"
    with closing(probe):
        graph, eager = probe.replay(PROBE_LAUNCHES), probe.eager(PROBE_LAUNCHES)
    return (None if graph is None else graph.device_ns / 1e3), eager.device_ns / 1e3


def timed_us(work: Callable[[], object]) -> float:
    durations = []
    for _ in range(5):
        began = time.perf_counter_ns()
        work()
        durations.append((time.perf_counter_ns() - began) / 1e3)
    return statistics.median(durations)


COLUMNS = ("decode", "prepare", "h2d", "device", "d2h", "lane", "render", "graph", "eager")


def table(figures: Sequence[ChainFigures]) -> str:
    """One line per figure; microseconds, but for the first three columns and the last."""
    if not figures:
        return ""
    head = f"{'model':12}{'bucket':>12}{'way':>8}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'rows/s':>10}\n"
    lines = [head]
    for each in figures:
        values = asdict(replace(each, graph_us=each.graph_us or float("nan")))
        rows = int(each.bucket.split(":")[0].split("x")[0])
        line = f"{each.model:12}{each.bucket:>12}{each.way:>8}"
        line += "".join(f"{values[f'{name}_us']:>10.0f}" for name in COLUMNS)
        lines.append(f"{line}{each.batches_per_s * rows:>10.0f}\n")
    return "".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
