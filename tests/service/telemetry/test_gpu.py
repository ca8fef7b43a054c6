import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from service.telemetry.gpu import MAX_AGE_NS, GpuSampler
from service.telemetry.gpu_figures import Reading
from service.telemetry.nvml import NvmlUnavailable
from service.telemetry.recorder import Recorder
from tests.doubles.fake_nvml import FakeGpu, FakeNvml

ONE, TWO = "0000:3B:00.0", "0000:5E:00.0"
WAIT_S = 10


class SteppedNvml(FakeNvml):
    """Lets the test see the begin of each sample, and what thread takes it."""

    def __init__(self, gpus):
        super().__init__(gpus)
        self.sampled = threading.Semaphore(0)
        self.threads = set()

    def _begin(self, name, **options):
        super()._begin(name, **options)
        self.threads.add(threading.current_thread().name)
        if name == "nvmlDeviceGetUtilizationRates":
            self.sampled.release()


@pytest.fixture
def nvml():
    return SteppedNvml({ONE: FakeGpu("GPU-1"), TWO: FakeGpu("GPU-2")})


@pytest.fixture
def samplers():
    made = []
    yield made
    for sampler in made:
        sampler.stop()
        sampler.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "gpu-sampler"]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="service.telemetry")
    return caplog


def start(samplers, nvml, **options):
    def load():
        nvml.nvmlInit()
        return nvml

    sampler = GpuSampler(interval_s=0.001, **{"load": load, **options})
    samplers.append(sampler)
    sampler.start()
    return sampler


def wait_for_samples(nvml, count):
    for _ in range(count):
        assert nvml.sampled.acquire(timeout=WAIT_S)


def test_gpus_are_sampled_again_and_again_on_a_thread_of_their_own(samplers, nvml):
    sampler = start(samplers, nvml)
    assert sampler.figures() == ()
    assert nvml.calls == []
    sampler.watch(ONE)
    wait_for_samples(nvml, 3)
    figures = sampler.figures()
    assert [gpu.uuid for gpu in figures] == ["GPU-1"]
    assert figures[0].readings[Reading.SM_ACTIVITY_RATIO] == 0.8
    sampler.watch(TWO)
    sampler.watch(ONE)
    while nvml.sampled.acquire(blocking=False):
        pass
    wait_for_samples(nvml, 6)
    assert [gpu.uuid for gpu in sampler.figures()] == ["GPU-1", "GPU-2"]
    assert nvml.threads == {"gpu-sampler"}


def test_figures_of_an_nvml_that_hangs_are_not_shown_for_ever(samplers, nvml):
    now = 0
    may_answer = threading.Event()
    begin = nvml._begin

    def hanging_begin(name, **options):
        begin(name, **options)
        assert nvml.calls.count("nvmlDeviceGetUtilizationRates") < 3 or may_answer.wait(WAIT_S)

    nvml._begin = hanging_begin
    sampler = start(samplers, nvml, clock=lambda: now)
    sampler.watch(ONE)
    wait_for_samples(nvml, 3)
    now = MAX_AGE_NS
    assert [gpu.uuid for gpu in sampler.figures()] == ["GPU-1"]
    now = MAX_AGE_NS + 1
    assert sampler.figures() == ()
    may_answer.set()
    while not sampler.figures():
        wait_for_samples(nvml, 1)


def test_the_end_frees_everything_and_shows_nothing_more(samplers, nvml):
    sampler = start(samplers, nvml)
    sampler.watch(ONE)
    wait_for_samples(nvml, 2)
    sampler.stop()
    assert (nvml.open_count, nvml.gpm_samples) == (0, 0)
    assert sampler.figures() == ()


def test_a_server_without_a_gpu_never_loads_nvml(samplers, nvml, log):
    start(samplers, nvml).stop()
    assert nvml.calls == []
    assert log.records == []


def test_without_nvml_there_are_no_metrics_and_one_line(samplers, log):
    is_tried = threading.Event()

    def load():
        is_tried.set()
        raise NvmlUnavailable("nvidia-ml-py is not installed")

    sampler = start(samplers, None, load=load)
    sampler.watch(ONE)
    assert is_tried.wait(WAIT_S)
    sampler.stop()
    assert sampler.figures() == ()
    assert [(record.levelname, record.getMessage()) for record in log.records] == [
        ("INFO", "there are no metrics of the GPU: nvidia-ml-py is not installed")
    ]


def test_a_gpu_that_nvml_does_not_know_leaves_the_others(samplers, nvml, log):
    sampler = start(samplers, nvml)
    sampler.watch("0000:FF:00.0")
    sampler.watch(ONE)
    wait_for_samples(nvml, 3)
    assert [gpu.uuid for gpu in sampler.figures()] == ["GPU-1"]
    assert [record.getMessage() for record in log.records] == [
        "there are no metrics of the GPU at 0000:FF:00.0: NVML: Not Found"
    ]


def test_a_mistake_ends_the_metrics_and_nothing_else(samplers, nvml, log):
    nvml.gpus[ONE].answers["nvmlDeviceGetMemoryInfo"] = None
    sampler = start(samplers, nvml)
    sampler.watch(ONE)
    wait_for_samples(nvml, 1)
    sampler.stop()
    assert sampler.figures() == ()
    assert [(record.levelname, record.getMessage()) for record in log.records] == [
        ("INFO", "the metrics of the GPU end here")
    ]


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("inferlane_gpu_info", {"name": "Fake H200", "driver": "580.65.06"}, 1),
        ("inferlane_gpu_utilization_ratio", {}, 0.5),
        ("inferlane_gpu_memory_utilization_ratio", {}, 0.25),
        ("inferlane_gpu_memory_used_bytes", {}, 400),
        ("inferlane_gpu_memory_total_bytes", {}, 1000),
        ("inferlane_gpu_power_watts", {}, 350),
        ("inferlane_gpu_power_limit_watts", {}, 700),
        ("inferlane_gpu_energy_joules_total", {}, 9),
        ("inferlane_gpu_temperature_celsius", {}, 41),
        ("inferlane_gpu_clock_hertz", {"clock": "sm"}, 1.7e9),
        ("inferlane_gpu_clock_hertz", {"clock": "memory"}, 3e9),
        ("inferlane_gpu_max_clock_hertz", {"clock": "sm"}, 1.98e9),
        ("inferlane_gpu_clock_event", {"reason": "sw_power_cap"}, 1),
        ("inferlane_gpu_clock_event", {"reason": "hw_slowdown"}, 0),
        ("inferlane_gpu_sm_activity_ratio", {}, 0.8),
        ("inferlane_gpu_tensor_activity_ratio", {}, 0.4),
        ("inferlane_gpu_memory_bandwidth_ratio", {}, 0.3),
        ("inferlane_gpu_pcie_bytes_per_second", {"direction": "sent"}, 2 << 20),
        ("inferlane_gpu_pcie_bytes_per_second", {"direction": "received"}, 8 << 20),
        ("nv_gpu_utilization", {}, 0.5),
        ("nv_gpu_memory_total_bytes", {}, 1000),
        ("nv_gpu_memory_used_bytes", {}, 400),
        ("nv_gpu_power_usage", {}, 350),
        ("nv_gpu_power_limit", {}, 700),
        ("nv_energy_consumption", {}, 9),
    ],
)
def test_samples(samplers, nvml, name, labels, value):
    sampler = start(samplers, nvml)
    sampler.watch(ONE)
    wait_for_samples(nvml, 3)
    registry = CollectorRegistry()
    Recorder(registry=registry, triton_names_enabled=True, gpus=sampler.figures)
    assert registry.get_sample_value(name, {"gpu_uuid": "GPU-1", **labels}) == pytest.approx(value)


def test_what_a_gpu_does_not_tell_has_no_sample(samplers, nvml):
    nvml.failures["nvmlDeviceGetPowerUsage"] = "NOT_SUPPORTED"
    sampler = start(samplers, nvml)
    sampler.watch(ONE)
    wait_for_samples(nvml, 2)
    registry = CollectorRegistry()
    Recorder(registry=registry, triton_names_enabled=True, gpus=sampler.figures)
    assert registry.get_sample_value("inferlane_gpu_power_watts", {"gpu_uuid": "GPU-1"}) is None
    assert registry.get_sample_value("nv_gpu_power_usage", {"gpu_uuid": "GPU-1"}) is None
    assert registry.get_sample_value("inferlane_gpu_temperature_celsius", {"gpu_uuid": "GPU-1"}) == 41


def test_triton_s_names_can_be_left_out(samplers, nvml):
    sampler = start(samplers, nvml)
    sampler.watch(ONE)
    wait_for_samples(nvml, 2)
    registry = CollectorRegistry()
    Recorder(registry=registry, triton_names_enabled=False, gpus=sampler.figures)
    names = {metric.name for metric in registry.collect()}
    assert "inferlane_gpu_utilization_ratio" in names
    assert not [name for name in names if name.startswith("nv_")]
