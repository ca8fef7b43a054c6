import logging
import math
import os
import sys
from types import SimpleNamespace

import pytest

from service.telemetry.gpu_figures import ClockEvent, Reading
from service.telemetry.nvml import NvmlGpu, NvmlUnavailable, load_nvml
from tests.doubles.fake_nvml import EVENT_BITS, GPM_METRICS, WORDS, FakeGpu, FakeNvml

PLACE = "0000:3B:00.0"
ACTIVITY = {
    Reading.SM_ACTIVITY_RATIO: 0.8,
    Reading.TENSOR_ACTIVITY_RATIO: 0.4,
    Reading.MEMORY_BANDWIDTH_RATIO: 0.3,
    Reading.PCIE_SENT_BYTES_PER_S: 2 << 20,
    Reading.PCIE_RECEIVED_BYTES_PER_S: 8 << 20,
}
READINGS = {
    Reading.UTILIZATION_RATIO: 0.5,
    Reading.MEMORY_UTILIZATION_RATIO: 0.25,
    Reading.MEMORY_USED_BYTES: 400,
    Reading.MEMORY_TOTAL_BYTES: 1000,
    Reading.POWER_WATTS: 350,
    Reading.POWER_LIMIT_WATTS: 700,
    Reading.ENERGY_JOULES: 9,
    Reading.TEMPERATURE_CELSIUS: 41,
    Reading.SM_CLOCK_HERTZ: 1.7e9,
    Reading.MEMORY_CLOCK_HERTZ: 3e9,
    Reading.MAX_SM_CLOCK_HERTZ: 1.98e9,
    Reading.MAX_MEMORY_CLOCK_HERTZ: 3.201e9,
    Reading.OTHER_PROCESSES: 1,
}


@pytest.fixture
def fake():
    return FakeNvml({PLACE: FakeGpu()})


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="service.telemetry")
    return caplog


def opened(fake):
    fake.nvmlInit()
    return NvmlGpu(fake, PLACE)


def lines(log):
    return [record.getMessage() for record in log.records]


def test_all_that_a_gpu_tells_in_base_units(fake, log):
    gpu = opened(fake)
    assert gpu.read().readings == pytest.approx(READINGS)
    second = gpu.read()
    assert second.readings == pytest.approx(READINGS | ACTIVITY)
    assert (second.uuid, second.name, second.driver) == ("GPU-1", "Fake H200", "580.65.06")
    assert second.clock_events == {event: event is ClockEvent.SW_POWER_CAP for event in ClockEvent}
    assert lines(log) == []


def test_together_the_readings_are_all_there_are():
    assert READINGS.keys() | ACTIVITY.keys() == set(Reading)


@pytest.mark.parametrize("event", ClockEvent)
def test_every_clock_event_has_its_bit(fake, event):
    fake.gpus[PLACE].answers["nvmlDeviceGetCurrentClocksEventReasons"] = 1 << list(ClockEvent).index(event)
    assert [each for each, holds in opened(fake).read().clock_events.items() if holds] == [event]


@pytest.mark.parametrize(
    ("function", "missing"),
    [
        ("nvmlDeviceGetUtilizationRates", {Reading.UTILIZATION_RATIO, Reading.MEMORY_UTILIZATION_RATIO}),
        ("nvmlDeviceGetMemoryInfo", {Reading.MEMORY_USED_BYTES, Reading.MEMORY_TOTAL_BYTES}),
        ("nvmlDeviceGetPowerUsage", {Reading.POWER_WATTS}),
        ("nvmlDeviceGetTotalEnergyConsumption", {Reading.ENERGY_JOULES}),
        ("nvmlDeviceGetMaxClockInfo", {Reading.MAX_SM_CLOCK_HERTZ, Reading.MAX_MEMORY_CLOCK_HERTZ}),
        ("nvmlDeviceGetComputeRunningProcesses", {Reading.OTHER_PROCESSES}),
        ("nvmlGpmSampleAlloc", set(ACTIVITY)),
        ("nvmlGpmQueryDeviceSupport", set(ACTIVITY)),
        ("nvmlGpmMetricsGet", set(ACTIVITY)),
    ],
)
@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "NO_PERMISSION", "FUNCTION_NOT_FOUND"])
def test_what_a_gpu_does_not_support_is_left_out_and_not_asked_again(fake, log, function, missing, code):
    fake.failures[function] = code
    gpu = opened(fake)
    gpu.read()
    gpu.read()
    fake.failures.clear()
    asked = fake.calls.count(function)
    assert gpu.read().readings.keys() == (READINGS | ACTIVITY).keys() - missing
    assert fake.calls.count(function) == asked
    words = str(fake.error(code))
    assert lines(log)
    assert all(line.startswith("Fake H200 does not tell its ") and line.endswith(words) for line in lines(log))
    assert len(lines(log)) == len(set(lines(log)))


@pytest.mark.parametrize("code", ["TIMEOUT", "GPU_IS_LOST"])
def test_what_fails_for_a_while_is_absent_meanwhile(fake, log, code):
    gpu = opened(fake)
    fake.failures["nvmlDeviceGetPowerUsage"] = code
    for _ in range(3):
        assert Reading.POWER_WATTS not in gpu.read().readings
    fake.failures.clear()
    assert gpu.read().readings[Reading.POWER_WATTS] == 350
    assert lines(log) == [f"Fake H200 does not tell its power now: {fake.error(code)}"]


def test_activity_is_of_an_unbroken_interval(fake):
    gpu = opened(fake)
    gpu.read()
    fake.failures["nvmlGpmSampleGet"] = "TIMEOUT"
    assert Reading.SM_ACTIVITY_RATIO not in gpu.read().readings
    fake.failures.clear()
    assert Reading.SM_ACTIVITY_RATIO not in gpu.read().readings
    assert gpu.read().readings[Reading.SM_ACTIVITY_RATIO] == 0.8


def test_a_gpu_before_hopper_has_no_activity(fake, log):
    fake.gpus[PLACE].gpm_is_supported = False
    gpu = opened(fake)
    assert [gpu.read().readings.keys() for _ in range(2)] == [READINGS.keys()] * 2
    assert lines(log) == ["Fake H200 does not tell its activity: Not Supported"]
    assert "nvmlGpmSampleAlloc" not in fake.calls


def test_single_activities_that_are_missing_or_no_numbers_are_left_out(fake):
    activity = fake.gpus[PLACE].activity
    activity[5] = math.nan
    del activity[10]
    gpu = opened(fake)
    gpu.read()
    missing = {Reading.TENSOR_ACTIVITY_RATIO, Reading.MEMORY_BANDWIDTH_RATIO}
    assert gpu.read().readings.keys() == (READINGS | ACTIVITY).keys() - missing


def test_an_old_driver_has_clock_events_by_their_former_name(fake, log):
    fake.failures["nvmlDeviceGetCurrentClocksEventReasons"] = "FUNCTION_NOT_FOUND"
    assert opened(fake).read().clock_events[ClockEvent.HW_THERMAL_SLOWDOWN]
    assert lines(log) == []


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        pytest.param([os.getpid()], {Reading.OTHER_PROCESSES: 0}, id="this one alone"),
        pytest.param([1, os.getpid(), 1, 2], {Reading.OTHER_PROCESSES: 2}, id="others, one of them twice"),
        pytest.param([1, 2], {}, id="ids of another namespace"),
        pytest.param([], {}, id="nobody, not even this one"),
    ],
)
def test_processes_beside_this_one_where_it_is_among_them(fake, ids, told):
    fake.gpus[PLACE].answers["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=each) for each in ids]
    readings = opened(fake).read().readings
    assert {key: value for key, value in readings.items() if key is Reading.OTHER_PROCESSES} == told


def test_the_time_of_asking_is_counted(fake):
    fake.nvmlInit()
    moments = iter([100, 130, 1000, 1005])
    gpu = NvmlGpu(fake, PLACE, clock=lambda: next(moments))
    assert [gpu.read().sampling_ns for _ in range(2)] == [30, 35]


def test_samples_are_freed(fake):
    gpu = opened(fake)
    gpu.read()
    assert fake.gpm_samples == 2
    gpu.close()
    gpu.close()
    assert fake.gpm_samples == 0


def test_the_bindings_are_loaded_and_initialised(fake, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert load_nvml() is fake
    assert fake.open_count == 1


def test_the_double_has_nothing_that_the_real_bindings_lack(fake):
    real = pytest.importorskip("pynvml")
    ours = {name for name in {*dir(FakeNvml), *vars(fake)} if name.lower().startswith(("nvml", "c_nvml"))}
    assert len(ours) > 40
    assert [name for name in sorted(ours) if not hasattr(real, name)] == []
    request = real.c_nvmlGpmMetricsGet_t()
    assert len(request.metrics) >= len(GPM_METRICS)
    assert {name: getattr(real, name) for name in GPM_METRICS} == GPM_METRICS
    assert {name: getattr(real, name) for name in EVENT_BITS} == EVENT_BITS
    assert str(real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)) == WORDS[real.NVML_ERROR_NOT_SUPPORTED]


def test_without_the_bindings_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match=r"nvidia-ml-py is not installed; pip install -e '\.\[gpu\]'"):
        load_nvml()


@pytest.mark.parametrize("code", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "NO_PERMISSION"])
def test_without_a_driver_the_message_has_nvml_s_words(fake, monkeypatch, code):
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    fake.failures["nvmlInit"] = code
    with pytest.raises(NvmlUnavailable, match=f"^NVML: {fake.error(code)}$"):
        load_nvml()
