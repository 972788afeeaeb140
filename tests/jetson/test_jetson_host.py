"""What the runner reads of a Jetson's clocks, temperatures and power: sysfs as its kernel's drivers lay it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.jetson import runner

ORIN = {
    "class/thermal/thermal_zone0/type": "cpu-thermal",
    "class/thermal/thermal_zone0/temp": "51250",
    "class/thermal/thermal_zone1/type": "pmic",
    "class/thermal/thermal_zone1/temp": "-274000000",  # a sensor that is off
    "class/thermal/cooling_device0/type": "pwm-fan",
    "class/thermal/cooling_device0/cur_state": "1",
    "class/hwmon/hwmon1/in1_label": "VDD_IN",
    "class/hwmon/hwmon1/in1_input": "5064",
    "class/hwmon/hwmon1/curr1_input": "1240",
    "class/hwmon/hwmon1/in2_input": "5056",
    "class/hwmon/hwmon1/curr2_input": "200",
    "class/hwmon/hwmon2/in1_input": "900",  # a voltage alone is no power
    "class/hwmon/hwmon3/oc1_event_cnt": "7",
    "devices/platform/gpu.0/load": "435",
    "devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil",
    "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1190400",
    "devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "1510400",
}


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runner, "SYS", str(tmp_path))
    return tmp_path


def write(sysfs: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = sysfs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_state_of_a_jetson_has_its_units(sysfs: Path) -> None:
    write(sysfs, ORIN)
    state = runner.host_snapshot()
    assert state["temperature_c"] == {"cpu-thermal": 51.25}
    assert state["cooling"] == {"cooling_device0:pwm-fan": "1"}
    assert state["power_mw"] == {"VDD_IN": 6279, "hwmon1/curr2_input": 1011}
    assert state["gpu_load"] == 435
    assert (state["governor"], state["cpu_khz"], state["cpu_max_khz"]) == ("schedutil", 1_190_400, 1_510_400)
    assert list(state["over_current"].values()) == ["7"]


def test_gpu_load_of_releases_before_jetpack_6(sysfs: Path) -> None:
    write(sysfs, {"devices/gpu.0/load": "990"})
    assert runner.host_snapshot()["gpu_load"] == 990


def test_a_machine_that_says_nothing_of_itself_has_no_values(sysfs: Path) -> None:
    state = runner.host_snapshot()
    assert (state["gpu_load"], state["cpu_khz"], state["power_mw"], state["temperature_c"]) == (None, None, {}, {})
