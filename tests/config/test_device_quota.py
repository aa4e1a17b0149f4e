"""``deviceQuota``: what devices of resource claims count as in queues."""

from __future__ import annotations

import pytest

from gpusched.api.meta.gpu_resources import DEFAULT_DEVICE_QUOTA, DeviceQuota
from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT, Config
from gpusched.config.reload import ConfigKept, decide_reload


def read(text: str) -> Config:
    """The configuration that a file with this text asks for."""
    return load_config(text, source="f.yaml")


def rows(text: str) -> tuple[DeviceQuota, ...]:
    """Rows of a table that is written in flow style."""
    return read(f"deviceQuota: {text}\n").gpu_resources.device_quota


def test_rows_are_in_the_units_of_their_resources():
    assert rows("[{deviceClass: half, amounts: {nvidia.com/gpu: 0.5, a.b/memory: 40Gi}}]") == (
        DeviceQuota(
            device_class="half", amounts=(("a.b/memory", 40 * 2**30), ("nvidia.com/gpu", 500))
        ),
    )


def test_gpus_of_the_file_are_counted_in_thousandths():
    config = read(
        "gpuResources: [{name: a.b/npu}]\ndeviceQuota: [{deviceClass: x, amounts: {a.b/npu: 2}}]\n"
    )
    assert config.gpu_resources.device_quota[0].amounts == (("a.b/npu", 2_000),)


def test_a_selector_and_a_capacity_may_say_what_counts():
    text = "[{selector: device.driver == 'd', amounts: {a.b/memory: {capacity: memory}}, count: whole}]"
    assert rows(text) == (
        DeviceQuota(
            selector="device.driver == 'd'", capacities=(("a.b/memory", "memory"),), by_part=False
        ),
    )


def test_the_default_has_the_classes_of_nvidias_driver():
    assert DEFAULT.gpu_resources.device_quota == DEFAULT_DEVICE_QUOTA
    assert rows("[]") == ()
    assert read("gpuResources: [{name: a.b/npu}]\n").gpu_resources.device_quota == ()


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("{}", "deviceQuota must be a list of at least one"),
        ("[{amounts: {nvidia.com/gpu: 1}}]", "needs one of deviceClass and selector, not neither"),
        (
            "[{deviceClass: a, selector: 'true', amounts: {nvidia.com/gpu: 1}}]",
            "an item of deviceQuota needs one of deviceClass and selector, not both",
        ),
        ("[{deviceClass: a}]", "an item of deviceQuota needs the key amounts"),
        ("[{deviceClass: a, amounts: {}}]", "amounts must be amounts by resource"),
        (
            "[{deviceClass: a, amounts: {nvidia.com/gpu: -1}}]",
            (
                "amounts.nvidia.com/gpu must be 0 or more, such as 1, 0.5 or 80Gi, or {capacity: NAME}, "
                "not -1"
            ),
        ),
        ("[{deviceClass: a, amounts: {nvidia.com/gpu: true}}]", "must be 0 or more"),
        (
            "[{deviceClass: a, amounts: {gpus: 1}}]",
            (
                'amounts: "gpus" is no resource that devices count as; name an extended one such as '
                "nvidia.com/gpu"
            ),
        ),
        ("[{deviceClass: a, amounts: {cpu: 1}}]", '"cpu" is no resource that devices count as'),
        ("[{deviceClass: a, amounts: {a.b/m: {capacity: 3}}}]", "must be the name of a capacity"),
        ("[{deviceClass: a, amounts: {a.b/m: {}}}]", "amounts.a.b/m needs the key capacity"),
        ("[{selector: 'device.(', amounts: {a.b/m: 1}}]", "must be a CEL expression over device"),
        (
            "[{deviceClass: a, amounts: {a.b/m: 1}, count: half}]",
            "count must be one of part, whole",
        ),
        (
            "[{deviceClass: a, amounts: {a.b/m: 1}}, {deviceClass: a, amounts: {a.b/m: 2}}]",
            "deviceQuota has two rows for a",
        ),
        ("[{deviceClass: a, amounts: {a.b/m: 1}, cuont: part}]", 'unknown key "cuont"'),
    ],
)
def test_a_wrong_row_is_refused_with_one_sentence_and_its_line(value: str, part: str):
    with pytest.raises(ConfigError) as wrong:
        read(f"deviceQuota: {value}\n")
    assert part in str(wrong.value)
    assert len(wrong.value.problems) == 1
    assert "f.yaml:1" in str(wrong.value)


def test_another_table_takes_a_restart():
    """Amounts of decisions already taken were counted by the old one."""
    decision = decide_reload(DEFAULT, read("deviceQuota: []\n"))
    assert isinstance(decision, ConfigKept)
    assert "deviceQuota" in decision.problems[0]
    assert "gpuResources" not in decision.problems[0]
