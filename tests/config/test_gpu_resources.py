"""The section gpuResources: what is read, and a sentence for each mistake."""

from __future__ import annotations

import pytest

from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, GpuResource, GpuResources
from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT
from gpusched.config.reload import ConfigKept, decide_reload


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(text, source="f.yaml")
    return caught.value.problems


def test_every_key_is_read() -> None:
    """Given all keys of a resource, then each is there, and what is left out is empty."""
    text = """
gpuResources:
- name: example.com/npu
  slicePrefix: example.com/npu-part-
  productLabels: [example.com/product, product]
  memoryLabel: example.com/memory
  replicasLabel: example.com/replicas
  driver: cards.example.com
- {name: amd.com/gpu}
"""
    assert load_config(text, source="f.yaml").gpu_resources == GpuResources(
        (
            GpuResource(
                name="example.com/npu",
                slice_prefix="example.com/npu-part-",
                product_labels=("example.com/product", "product"),
                memory_label="example.com/memory",
                replicas_label="example.com/replicas",
                driver="cards.example.com",
            ),
            GpuResource(name="amd.com/gpu"),
        )
    )


def test_the_default_is_todays_list() -> None:
    """Given no list, then the six resources of the version before are in force."""
    assert load_config("{}", source="f.yaml").gpu_resources is DEFAULT_GPU_RESOURCES
    assert DEFAULT_GPU_RESOURCES.names == (
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "huawei.com/Ascend910",
        "nvidia.com/gpu",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "gpuResources must be a list of at least one, not an empty list"),
        ("nvidia.com/gpu", 'gpuResources must be a list of at least one, not "nvidia.com/gpu"'),
        ("[nvidia.com/gpu]", 'an item of gpuResources must be a mapping, not "nvidia.com/gpu"'),
        ("[{driver: gpu.nvidia.com}]", "an item of gpuResources needs the key name"),
        (
            "[{name: cpu}]",
            'name must be an extended resource such as nvidia.com/gpu, not "cpu"',
        ),
        (
            "[{name: requests.kubernetes.io/gpu}]",
            (
                "name must be an extended resource such as nvidia.com/gpu, "
                'not "requests.kubernetes.io/gpu": requests.kubernetes.io is of Kubernetes itself'
            ),
        ),
        (
            "[{name: a.b/c}, {name: a.b/c}]",
            'gpuResources names "a.b/c" twice: it is already in line 1',
        ),
        (
            "[{name: a.b/gpu, slicePrefix: a.b/g}]",
            (
                'gpuResources: slicePrefix "a.b/g" of a.b/gpu also begins the name of a.b/gpu, '
                "which is a whole GPU"
            ),
        ),
        (
            "[{name: a.b/gpu, slicePrefix: a.b/p-}, {name: a.b/npu, slicePrefix: a.b/p-q-}]",
            'gpuResources: slicePrefix "a.b/p-" of a.b/gpu also begins that of a.b/npu',
        ),
        (
            "[{name: a.b/gpu, slicePrefix: p-}]",
            'slicePrefix must begin names of resources, such as nvidia.com/mig-, not "p-"',
        ),
        (
            "[{name: a.b/gpu, memoryLabel: a/b/c}]",
            'memoryLabel must be the key of a label such as nvidia.com/gpu.product, not "a/b/c"',
        ),
        (
            "[{name: a.b/gpu, driver: 7}]",
            "driver must be a driver of dynamic resource allocation such as gpu.nvidia.com, not 7",
        ),
        (
            "[{name: a.b/gpu, memory: a.b/c}]",
            (
                'unknown key "memory" in an item of gpuResources: known keys are name, slicePrefix, '
                'productLabels, memoryLabel, replicasLabel, driver; did you mean "memoryLabel"?'
            ),
        ),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    """Given a list with one mistake, then it is told with its line, and nothing else is."""
    assert problems(f"gpuResources: {text}") == (f"f.yaml:1: {sentence}",)


def test_another_list_takes_a_restart() -> None:
    """Given a daemon with one list, when the file has another, then the old one is kept."""
    other = load_config("gpuResources: [{name: a.b/c}]", source="f.yaml")
    kept = decide_reload(DEFAULT, other)
    assert isinstance(kept, ConfigKept)
    assert kept.problems == ("f.yaml: gpuResources changed, which takes a restart of the daemon",)
