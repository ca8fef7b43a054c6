"""What tasks on the device promise, as tests that run on the emulated device and, unchanged, on a real GPU.

Above all that both ways answer the same. The kernels scale as OpenCV does, bit for bit, and normalise by one
multiplication and addition; the engine is the same; scores and boxes then agree within rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.buckets import Form
from service.cards import BoxLayout
from service.device_figures import MemoryOwner
from service.errors import ExecutionFailed
from service.models import ModelSpec
from service.pipeline.frames import PixelFormat, RawImage
from service.runtime.batch_invariance import KERNELS_PER_BUCKET
from service.runtime.cuda.device import LiveCounts
from service.runtime.media_invariance import check_media_invariance
from service.runtime.trt.lane import LANE_DEPTH
from service.runtime.warm_up import warm_up
from tests.doubles.media_models import MediaBench, answered, batch_of, tasks
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise, smooth

SCORE_TOLERANCE = 2e-4
PIXEL_TOLERANCE = 0.05
VECTOR_TOLERANCE = 1e-5

SIDES = ((24, 32), (1, 1), (37, 91), (100, 100), (3, 97), (64, 64))
"""All within the 10,000 pixels that the cards allow."""

RESIZES = {
    "stretch": 'resize = "stretch"\n',
    "letterbox": 'resize = "letterbox"\npad_value = 7\n',
    "crop": 'resize = "shortest-side+crop"\nshortest_side = 40\ncolor = "bgr"\nmean = [0.4, 0.5, 0.6]\n',
}


def pictures(sides: tuple[tuple[int, int], ...] = SIDES) -> list[np.ndarray]:
    return [smooth(*side) if min(side) > 8 else noise(*side, seed=index) for index, side in enumerate(sides)]


def body_of(images: list[np.ndarray]) -> bytes:
    return form(*(part(encode(".png", image)) for image in images))


def assert_same_classes(got: Any, wanted: Any) -> None:
    assert len(got["results"]) == len(wanted["results"])
    for one, other in zip(got["results"], wanted["results"], strict=True):
        assert [each["index"] for each in one["predictions"]] == [each["index"] for each in other["predictions"]]
        scores = [[each["score"] for each in result["predictions"]] for result in (one, other)]
        np.testing.assert_allclose(*scores, atol=SCORE_TOLERANCE)


def assert_same_boxes(got: Any, wanted: Any) -> None:
    assert len(got["results"]) == len(wanted["results"])
    for one, other in zip(got["results"], wanted["results"], strict=True):
        found = [[(each["index"], each["label"]) for each in result["detections"]] for result in (one, other)]
        assert found[0] == found[1]
        assert (one["height"], one["width"]) == (other["height"], other["width"])
        for key, tolerance in (("score", SCORE_TOLERANCE), ("box", PIXEL_TOLERANCE)):
            values = [[each[key] for each in result["detections"]] for result in (one, other)]
            np.testing.assert_allclose(*values, atol=tolerance)


class MediaCases:
    """Needs a fixture `bench: MediaBench`."""

    @pytest.mark.parametrize("resize", RESIZES)
    def test_images_of_any_sizes_in_one_batch_are_classified_as_on_the_host(
        self, bench: MediaBench, resize: str
    ) -> None:
        backend = bench.open("seer", RESIZES[resize])
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        for first in (0, 2):
            body = body_of(pictures()[first : first + 4])
            got, forms = answered(lane, backend.spec, device.steps(body, FORM, {}))
            wanted, other_forms = answered(lane, backend.spec, host.steps(body, FORM, {}))
            assert (forms, other_forms) == ([Form.MEDIA] * 4, [Form.TENSORS])
            assert_same_classes(got, wanted)

    def test_half_precision_inputs_and_scores(self, bench: MediaBench) -> None:
        backend = bench.open("half-seer")
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        body = body_of(pictures()[:3])
        got, _ = answered(lane, backend.spec, device.steps(body, FORM, {"top_k": "1"}))
        wanted, _ = answered(lane, backend.spec, host.steps(body, FORM, {"top_k": "1"}))
        for one, other in zip(got["results"], wanted["results"], strict=True):
            assert one["predictions"][0]["score"] == pytest.approx(other["predictions"][0]["score"], abs=5e-3)

    def test_an_image_beyond_the_limit_goes_another_way_within_the_same_request(self, bench: MediaBench) -> None:
        backend = bench.open("seer")
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        body = body_of(pictures(((24, 32), (101, 100), (1, 1), (150, 80))))
        got, forms = answered(lane, backend.spec, device.steps(body, FORM, {}))
        assert forms == [Form.MEDIA, Form.MEDIA, Form.TENSORS]
        assert_same_classes(got, answered(lane, backend.spec, host.steps(body, FORM, {}))[0])

    @pytest.mark.parametrize(("top_k", "form"), [("1", Form.MEDIA), ("16", Form.MEDIA), ("17", Form.TENSORS)])
    def test_how_many_classes_are_ranked_by_the_kernel(self, bench: MediaBench, top_k: str, form: Form) -> None:
        backend = bench.open("seer")
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        body = encode(".png", smooth(60, 80))
        got, forms = answered(lane, backend.spec, device.steps(body, "image/png", {"top_k": top_k}))
        assert forms == [form]
        assert len(got["results"][0]["predictions"]) == int(top_k)
        assert_same_classes(got, answered(lane, backend.spec, host.steps(body, "image/png", {"top_k": top_k}))[0])

    @pytest.mark.parametrize("name", ["finder8", "finder5", "named-finder"])
    def test_boxes_are_those_of_the_host(self, bench: MediaBench, name: str) -> None:
        layout = BoxLayout.YOLOV5 if name == "finder5" else BoxLayout.YOLOV8
        backend = bench.open(name, f'[detect]\nscore_threshold = 0.3\nlayout = "{layout.value}"\n')
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        assert device.layout is layout
        body = body_of(pictures()[2:6])
        for options in ({}, {"score_threshold": "0.6"}, {"max_detections": "2"}):
            got, forms = answered(lane, backend.spec, device.steps(body, FORM, options))
            assert forms == [Form.MEDIA] * 4
            assert_same_boxes(got, answered(lane, backend.spec, host.steps(body, FORM, options))[0])
        assert any(result["detections"] for result in got["results"])

    @pytest.mark.parametrize(
        "options", [{"score_threshold": "0.2"}, {"iou_threshold": "0.5"}, {"max_detections": "301"}]
    )
    def test_what_the_kernels_do_not_answer_is_answered_by_the_host(
        self, bench: MediaBench, options: dict[str, str]
    ) -> None:
        backend = bench.open("finder8")
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        body = body_of(pictures()[2:4])
        got, forms = answered(lane, backend.spec, device.steps(body, FORM, options))
        assert forms == [Form.TENSORS]
        assert_same_boxes(got, answered(lane, backend.spec, host.steps(body, FORM, options))[0])

    @pytest.mark.parametrize("name", ["fragile-seer", "fragile-finder"])
    def test_what_is_not_a_number_fails_either_way_and_hurts_no_neighbour(self, bench: MediaBench, name: str) -> None:
        backend = bench.open(name)
        lane = bench.lane(backend)
        spec = backend.spec
        dark, light = (np.full((40, 50, 3), shade, np.uint8) for shade in (20, 230))
        for task in tasks(spec):
            with pytest.raises(ExecutionFailed, match="that are not numbers"):
                answered(lane, spec, task.steps(encode(".png", dark), "image/png", {}))
        device, host = tasks(spec)
        calls = [next(device.steps(encode(".png", image), "image/png", {})).calls[0] for image in (dark, light)]
        outputs = lane.sync(lane.enqueue(batch_of(spec, calls))).outputs
        steps = device.steps(encode(".png", light), "image/png", {})
        next(steps)
        with pytest.raises(StopIteration) as done:
            steps.send((outputs[1],))
        wanted, _ = answered(lane, spec, host.steps(encode(".png", light), "image/png", {}))
        (assert_same_classes if name == "fragile-seer" else assert_same_boxes)(done.value.value, wanted)

    @pytest.mark.parametrize("pixel_format", PixelFormat)
    def test_raw_frames(self, bench: MediaBench, pixel_format: PixelFormat) -> None:
        backend = bench.open("finder8")
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        image = smooth(60, 90)
        data = {
            PixelFormat.RGB: image.tobytes(),
            PixelFormat.BGR: image[..., ::-1].tobytes(),
            PixelFormat.NV12: image.tobytes()[: 60 * 90 * 3 // 2],
        }[pixel_format]
        frame = RawImage.from_bytes(data, pixel_format, 60, 90)
        got, forms = answered(lane, backend.spec, device.frame_steps(frame, {}))
        assert forms == [Form.MEDIA]
        assert_same_boxes(got, answered(lane, backend.spec, host.frame_steps(frame, {}))[0])

    @pytest.mark.parametrize("more", ["", "normalize = false\n"])
    def test_vectors_are_those_of_the_host(self, bench: MediaBench, more: str) -> None:
        backend = bench.open("speaker", more)
        lane = bench.lane(backend)
        device, host = tasks(backend.spec)
        texts = ["red", "red green blue light red", "blue blue", "light", "green red green", "blue", "red light"]
        body = b'{"text": [' + b", ".join(f'"{text}"'.encode() for text in texts) + b"]}"
        got, forms = answered(lane, backend.spec, device.steps(body, "application/json", {}))
        wanted, other_forms = answered(lane, backend.spec, host.steps(body, "application/json", {}))
        assert (set(forms), set(other_forms)) == ({Form.MEDIA}, {Form.TENSORS})
        for one, other in zip(got["results"], wanted["results"], strict=True):
            assert one["tokens"] == other["tokens"]
            np.testing.assert_allclose(one["embedding"], other["embedding"], atol=VECTOR_TOLERANCE)

    def test_random_batches_of_both_forms_two_in_flight_give_each_row_its_own(self, bench: MediaBench) -> None:
        backend = bench.open("seer")
        spec, lane = backend.spec, bench.lane(backend)
        device, host = tasks(spec)
        rng = np.random.default_rng(1)
        images = [noise(int(h), int(w), seed=int(h)) for h, w in rng.integers(1, 100, (12, 2))]
        alone = [_outputs(lane, spec, [_call(device, image)])[0] for image in images]
        tensors = [_outputs(lane, spec, [_call(host, image)])[0] for image in images]
        in_flight: list[tuple[list[int], Form, object]] = []
        for turn in range(20):
            chosen = [int(index) for index in rng.integers(0, len(images), int(rng.integers(1, 5)))]
            task, form = (host, Form.TENSORS) if turn % 3 == 2 else (device, Form.MEDIA)
            batch = batch_of(spec, [_call(task, images[index]) for index in chosen])
            in_flight.append((chosen, form, lane.enqueue(batch)))
            if len(in_flight) == LANE_DEPTH:
                _check(lane, in_flight.pop(0), {Form.MEDIA: alone, Form.TENSORS: tensors})
        _check(lane, in_flight.pop(), {Form.MEDIA: alone, Form.TENSORS: tensors})
        figures = lane.figures()
        assert figures.graph_misses == {}
        assert sum(figures.eager_runs.values()) == 0
        assert all(figures.replays[bucket] > 0 for bucket in spec.buckets.known() if bucket.form is Form.MEDIA)

    @pytest.mark.parametrize("name", ["seer", "finder8", "speaker"])
    def test_the_warm_up_of_every_backend_passes(self, bench: MediaBench, name: str) -> None:
        backend = bench.open(name)
        spec, lane = backend.spec, backend.create_lane(0)
        bench.lanes.append(lane)
        warmth = warm_up(lane, spec, lambda bucket: None, first_run_counts=False)
        assert warmth.unserved == {}
        assert {bucket.form for bucket in warmth.costs.measured_ns} == {Form.TENSORS, Form.MEDIA}
        assert check_media_invariance(lane, spec, KERNELS_PER_BUCKET.least_tolerance) == {}

    def test_what_is_copied_is_what_the_images_have(self, bench: MediaBench) -> None:
        backend = bench.open("seer")
        spec, lane = backend.spec, bench.lane(backend)
        device, _ = tasks(spec)
        before = lane.figures()
        lane.sync(lane.enqueue(batch_of(spec, [_call(device, noise(10, 10)), _call(device, noise(20, 5))])))
        after = lane.figures()
        assert after.h2d_bytes - before.h2d_bytes == 256 + 512 + 300  # descriptors, then images at multiples of 256
        assert after.d2h_bytes - before.d2h_bytes == 256 + 4 * 16 * 4

    @pytest.mark.parametrize("name", ["seer", "finder8", "speaker"])
    def test_a_probe_times_the_whole_chain(self, bench: MediaBench, name: str) -> None:
        backend = bench.open(name)
        buckets = [bucket for bucket in backend.spec.buckets.known() if bucket.form is Form.MEDIA]
        with backend.create_probe(buckets[0]) as probe:
            assert probe.graph_miss is None
            for timed in (probe.replay, probe.eager, probe.h2d, probe.d2h):
                times = timed(3)
                assert times is not None
                assert times.host_ns > 0

    def test_closing_frees_everything(self, bench: MediaBench) -> None:
        before = bench.cuda.live
        backend = bench.open("seer")
        lane = bench.lane(backend)
        assert bench.cuda.live.graphs == before.graphs + LANE_DEPTH * len(tuple(backend.spec.buckets.known()))
        assert lane.figures().device_bytes[MemoryOwner.BUFFERS] > 4 * 10_000 * 3 * LANE_DEPTH
        lane.close()
        backend.close()
        backend.close()
        assert bench.cuda.live == before == LiveCounts()


def _call(task: Any, image: np.ndarray) -> Any:
    return next(task.frame_steps(RawImage.from_rgb(image), {})).calls[0]


def _outputs(lane: Any, spec: ModelSpec, calls: list[Any]) -> Any:
    return lane.sync(lane.enqueue(batch_of(spec, calls))).outputs


def _check(lane: Any, flight: tuple[list[int], Form, object], wanted: dict[Form, list[Any]]) -> None:
    chosen, form, ticket = flight
    for index, outputs in zip(chosen, lane.sync(ticket).outputs, strict=True):
        for got, alone in zip(outputs, wanted[form][index], strict=True):
            if np.issubdtype(got.dtype, np.floating):
                np.testing.assert_allclose(got, alone, rtol=1e-3, atol=1e-4)
            else:  # classes, which may change places where their scores are nearly equal
                gaps = -np.diff(outputs[0], prepend=np.inf, append=-np.inf)
                is_clear = (gaps[:, :-1] > SCORE_TOLERANCE) & (gaps[:, 1:] > SCORE_TOLERANCE)
                np.testing.assert_array_equal(got[is_clear], alone[is_clear])
