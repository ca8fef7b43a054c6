"""Tasks in a lane on the emulated device: the shared cases, and what only a fake can be told to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.buckets import Bucket, Form
from service.device_figures import MissReason
from service.errors import DeviceError, ExecutionFailed
from service.runtime.trt.lane import LANE_DEPTH
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_tensorrt_model import model_in, plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.media_cases import MediaCases, assert_same_classes
from tests.doubles.media_models import MediaBench, answered, tasks
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, smooth
from tests.service.runtime.trt.media.conftest import MakeMediaBench

BODY = form(*(part(encode(".png", smooth(*sides))) for sides in ((40, 30), (12, 70), (24, 32))))


@pytest.fixture
def bench(make_media_bench: MakeMediaBench) -> MediaBench:
    return make_media_bench("10")


class TestMedia(MediaCases):
    """What every device promises; the same cases run on a real GPU in `tests/gpu`."""


@pytest.mark.parametrize("generation", ["8.6", "11"])
def test_other_generations(make_media_bench: MakeMediaBench, generation: str) -> None:
    bench = make_media_bench(generation)
    backend = bench.open("seer")
    assert_both_ways_agree(bench.lane(backend), backend.spec)


def assert_both_ways_agree(lane: Any, spec: Any) -> None:
    device, host = tasks(spec)
    for _ in range(LANE_DEPTH):
        got, forms = answered(lane, spec, device.steps(BODY, FORM, {}))
        assert forms == [Form.MEDIA] * 3
        assert_same_classes(got, answered(lane, spec, host.steps(BODY, FORM, {}))[0])


def change_plan(bench: MediaBench, name: str, **changed: Any) -> None:
    path = bench.plan(name)
    path.write_bytes(plan_of(replace(model_in(path.read_bytes()), **changed), VERSIONS["10"]))
    for beside in path.parent.glob("*.json"):
        beside.unlink()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"is_capturable": False}, MissReason.NOT_CAPTURABLE), ({"replay_error": 1}, MissReason.REPLAY_DIFFERS)],
)
def test_without_a_graph_kernels_and_engine_run_one_by_one(
    bench: MediaBench, changed: dict[str, Any], reason: MissReason
) -> None:
    change_plan(bench, "seer", **changed)
    backend = bench.open("seer")
    lane = bench.lane(backend)
    assert_both_ways_agree(lane, backend.spec)
    figures = lane.figures()
    assert {miss.reason for miss in figures.graph_misses.values()} == {reason}
    assert {Bucket(4), Bucket(4, (), Form.MEDIA)} <= set(figures.graph_misses)
    assert figures.eager_runs[Bucket(4, (), Form.MEDIA)] > 0


def test_a_bucket_of_media_has_a_context_of_its_own_where_that_of_tensors_is_not_served(bench: MediaBench) -> None:
    backend = bench.open("seer")
    lane = backend.create_lane(0)
    bench.lanes.append(lane)
    lane.warm_up(Bucket(4, (), Form.MEDIA))
    device, _ = tasks(backend.spec)
    got, _ = answered(lane, backend.spec, device.steps(BODY, FORM, {}))
    assert len(got["results"]) == 3
    with pytest.raises(ExecutionFailed, match="was not made ready for bucket 4"):
        answered(lane, backend.spec, tasks(backend.spec)[1].steps(BODY, FORM, {}))


def test_a_launch_that_fails_fails_one_batch(bench: MediaBench) -> None:
    change_plan(bench, "seer", is_capturable=False)
    backend = bench.open("seer")
    lane = bench.lane(backend)
    device, _ = tasks(backend.spec)
    bench.cuda.api.inject("_launchKernel", E.cudaErrorInvalidValue)  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match="cuLaunchKernel preprocess_fp32"):
        answered(lane, backend.spec, device.steps(BODY, FORM, {}))
    assert_both_ways_agree(lane, backend.spec)
