"""The system's files as Linux writes them, in both versions of control groups, and where they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.telemetry.host_counters import HostCounters, own_run_delay_ns, read_host_counters, run_delay_ns

STAT = "cpu  100 5 20 900 3 0 2 40 7 0\ncpu0 1 2 3\n"
PRESSURE = "some avg10=0.20 avg60=5.95 avg300=15.79 total=4981\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"


def system(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    text = "usage_usec 500\nnr_periods 30\nnr_throttled 4\nthrottled_usec 1500\n"
    counters = read_host_counters(7, system(tmp_path, sys__fs__cgroup__cpu_DOT_stat=text))
    assert (counters.periods, counters.throttled_periods, counters.throttled_ns) == (30, 4, 1_500_000)
    assert counters.at_ns == 7


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    text = "nr_periods 30\nnr_throttled 4\nthrottled_time 99\n"
    counters = read_host_counters(0, system(tmp_path, sys__fs__cgroup__cpu__cpu_DOT_stat=text))
    assert (counters.periods, counters.throttled_periods, counters.throttled_ns) == (30, 4, 99)


def test_a_group_that_counts_no_periods_tells_nothing(tmp_path: Path) -> None:
    counters = read_host_counters(0, system(tmp_path, sys__fs__cgroup__cpu_DOT_stat="usage_usec 500\n"))
    assert (counters.periods, counters.throttled_periods, counters.throttled_ns) == (None, None, None)


def test_stolen_time_is_a_part_of_all_time_in_which_guests_count_once(tmp_path: Path) -> None:
    counters = read_host_counters(0, system(tmp_path, proc__stat=STAT))
    assert (counters.stolen_ticks, counters.all_ticks) == (40, 100 + 5 + 20 + 900 + 3 + 0 + 2 + 40)


@pytest.mark.parametrize("stat", ["", "cpu 1 2\n", "intr 5\n"])
def test_a_machine_that_tells_no_stolen_time(tmp_path: Path, stat: str) -> None:
    counters = read_host_counters(0, system(tmp_path, proc__stat=stat))
    assert (counters.stolen_ticks, counters.all_ticks) == (None, None)


def test_pressure_is_the_container_s_own_where_it_has_it(tmp_path: Path) -> None:
    system(tmp_path, proc__pressure__cpu=PRESSURE)
    assert read_host_counters(0, tmp_path).pressure_ns == 4_981_000
    system(tmp_path, sys__fs__cgroup__cpu_DOT_pressure=PRESSURE.replace("4981", "5"))
    assert read_host_counters(0, tmp_path).pressure_ns == 5_000


def test_elsewhere_than_on_linux_nothing_is_known(tmp_path: Path) -> None:
    assert read_host_counters(3, tmp_path) == HostCounters(at_ns=3)


@pytest.mark.parametrize(
    ("schedstat", "delay_ns"), [("50915 71 1\n", 71), ("0 0 0", 0), ("", None), ("1 2", None), ("a b c", None)]
)
def test_run_delay_of_a_thread(schedstat: str, delay_ns: int | None) -> None:
    assert run_delay_ns(schedstat) == delay_ns


def interface(root: Path, name: str, speed: str, *, received: str = "0", sent: str = "0", is_real: bool = True) -> None:
    folder = root / "sys/class/net" / name
    (folder / "statistics").mkdir(parents=True)
    (folder / "speed").write_text(f"{speed}\n")
    (folder / "statistics/rx_bytes").write_text(received)
    (folder / "statistics/tx_bytes").write_text(sent)
    if is_real:
        (folder / "device").mkdir()


def test_network_interfaces_with_a_device_behind_them_and_a_speed(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", "1000", received="70", sent="10")
    interface(tmp_path, "eth1", "10000", received="5", sent="100")
    interface(tmp_path, "veth0", "10000", received="9999", is_real=False)
    interface(tmp_path, "eth2", "-1", received="9999")
    counters = read_host_counters(0, tmp_path)
    assert counters.nic_bytes == 110
    assert counters.nic_bytes_per_s == 11_000 * 125_000


def test_an_interface_that_tells_no_bytes_has_carried_none(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", "1000", received="", sent="x")
    assert read_host_counters(0, tmp_path).nic_bytes == 0


def test_interfaces_without_a_speed_tell_nothing(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", "-1", received="70")
    counters = read_host_counters(0, tmp_path)
    assert (counters.nic_bytes, counters.nic_bytes_per_s) == (None, None)


def test_the_calling_thread_s_wait_for_a_processor(tmp_path: Path) -> None:
    assert own_run_delay_ns(tmp_path) is None
    assert own_run_delay_ns(system(tmp_path, **{"proc__thread-self__schedstat": "123 456 7\n"})) == 456
