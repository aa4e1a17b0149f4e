"""Layouts of MIG partitions are the best there are, and what cannot be used is told."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.errors import ConfigError
from gpusched.lab.simulate.mig.choice import choose_layouts
from gpusched.lab.simulate.mig.demand import read_demand
from gpusched.lab.simulate.mig.layouts import product_of, read_layouts, size_of
from tests.lab.simulate.mig.clusters import node, pod, slices


def demand(*objects, layouts=()):
    return read_demand(objects, layouts, gpu_resources().main, ["gpusched"])


def proposed(asked):
    return {each.node.name: each.layout.name for each in choose_layouts(asked).changes}


def test_seven_small_pods_get_one_gpu_in_seven_parts():
    asked = demand(node("a", 1), *[pod(f"p{n}", *slices("1g.10gb")) for n in range(7)])
    choice = choose_layouts(asked)
    assert proposed(asked) == {"a": "all-1g.10gb"}
    assert (len(choice.served), choice.served_size, choice.proven) == (7, 7, True)


def test_a_whole_gpu_that_waits_ends_the_partitions_of_an_idle_node():
    parts = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}
    idle = node("a", 1, config="all-1g.10gb", offers=parts)
    assert proposed(demand(idle, pod("whole", "nvidia.com/gpu"))) == {"a": "all-disabled"}


def test_a_node_with_running_pods_keeps_its_layout():
    asked = demand(
        node("busy", 1), pod("runs", "nvidia.com/gpu", on="busy"), pod("waits", *slices("1g.10gb"))
    )
    assert proposed(asked) == {}
    assert asked.nodes[0].keeps == "runs pods with GPUs"


def test_gangs_are_served_whole_or_not_at_all():
    gang = [pod(f"p{n}", *slices("3g.40gb"), group="g") for n in range(3)]
    asked = demand(node("a", 1), *gang)
    assert proposed(asked) == {}
    assert choose_layouts(asked).served == ()
    assert proposed(demand(node("a", 1), node("b", 1), *gang)) == {
        "a": "all-3g.40gb", "b": "all-3g.40gb"
    }  # fmt: skip


def test_beside_what_waits_the_most_room_is_left_for_what_usually_runs():
    asked = demand(
        node("full", 1), pod("runs", "nvidia.com/gpu", on="full"),
        node("a", 1), node("b", 1), pod("waits", *slices("1g.10gb")),
    )  # fmt: skip
    assert len(proposed(asked)) == 1  # the other stays whole for the next of its kind


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"product": "Tesla-V100"}, "has GPUs that are not known (Tesla-V100)"),
        ({"nvidia_com__mig_strategy": "single"}, "has the strategy single"),
        ({"nvidia_com__mig_config_state": "pending"}, "is being partitioned now"),
        ({"nvidia_com__gpu_count": "many", "offers": {"nvidia.com/mig-1g.10gb": "7"}}, "does not tell"),
        ({"nvidia_com__gpu_count": "9" * 99, "offers": {"nvidia.com/mig-1g.10gb": "7"}}, "does not tell"),
    ],
)  # fmt: skip
def test_nodes_that_cannot_be_changed_say_why(labels, why):
    renamed = {key.replace("nvidia_com", "nvidia.com"): value for key, value in labels.items()}
    asked = demand(node("a", **renamed), pod("waits", *slices("1g.10gb")))
    assert why in asked.nodes[0].keeps
    assert proposed(asked) == {}


@pytest.mark.parametrize("seed", range(40))
def test_no_other_layouts_serve_more(seed):
    """Every combination of layouts, and of gangs on them, on small clusters."""
    rng = random.Random(seed)
    objects = [node(f"n{number}", rng.choice((1, 2))) for number in range(rng.randint(1, 3))]
    profiles = ("", "1g.10gb", "2g.20gb", "3g.40gb", "1g.20gb")
    for number in range(rng.randint(1, 5)):
        profile = rng.choice(profiles)
        resource = f"nvidia.com/mig-{profile}" if profile else "nvidia.com/gpu"
        members = range(rng.choice((1, 1, 2, 3)))
        objects += [pod(f"g{number}-{n}", resource, group=f"g{number}") for n in members]
    asked = demand(*objects)
    choice = choose_layouts(asked)
    best = 0
    for layouts in itertools.product(*[each.layouts for each in asked.nodes]):
        has = Counter()
        for _, provides in layouts:
            has.update(provides)
        for taken in itertools.product((False, True), repeat=len(asked.waiting)):
            needs = Counter()
            for gang in itertools.compress(asked.waiting, taken):
                needs.update(gang.needs)
            if all(has[name] >= n for name, n in needs.items()):
                best = max(best, sum(size_of(name) * n for name, n in needs.items()))
    assert choice.proven
    assert choice.served_size == best


def test_the_order_of_objects_changes_nothing():
    objects = [node(f"n{number}") for number in range(4)]
    objects += [pod(f"p{number}", *slices("2g.20gb")) for number in range(9)]
    first = choose_layouts(demand(*objects))
    random.Random(1).shuffle(objects)
    assert choose_layouts(demand(*objects)) == first


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100 40GB"), ("NVIDIA-A100-80GB-PCIe", "A100 80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100 80GB"), ("NVIDIA-H100-80GB-HBM3", "H100 80GB"),
        ("NVIDIA-H100-NVL", "H100 94GB"), ("NVIDIA-H200", "H200 141GB"), ("NVIDIA-A30", "A30"),
        ("NVIDIA-B200", "B200 180GB"), ("NVIDIA-GH200-480GB", "GH200 96GB"),
    ],
)  # fmt: skip
def test_products_are_known_by_their_label(label, name):
    assert product_of(label).name == name


def test_layouts_of_a_file_may_differ_by_gpu(tmp_path):
    file = tmp_path / "mig.yaml"
    file.write_text(
        "version: v1\nmig-configs:\n  mixed:\n  - {devices: [0], mig-enabled: false}\n"
        "  - devices: [1]\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n"
    )
    (layout,) = read_layouts(file)
    assert layout.provides(2) == {"": 1, "1g.10gb": 7}
    assert layout.provides(1) is None  # it is for two GPUs
    assert layout.provides(3) is None
    waiting = [pod("whole", "nvidia.com/gpu"), pod("part", *slices("1g.10gb"))]
    assert proposed(demand(node("a", 2), *waiting, layouts=[layout])) == {"a": "mixed"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is no YAML"),
        ("[]", "has no mig-configs"),
        ("mig-configs: {}", "has no mig-configs"),
        ("mig-configs: {x: 3}", "x: a configuration is a list of mappings"),
        ("mig-configs: {x: [{devices: some, mig-enabled: true}]}", "devices are 'all' or a list"),
        ("mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {9g.1gb: 1}}]}", "'9g.1gb' is no"),
        ("mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 8}}]}", "8 is no number"),
        ("mig-configs: {x: [{devices: all, mig-enabled: true, mig-devices: {4g.5gb: 2}}]}", "more than the seven"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, text, why):
    file = tmp_path / "mig.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_layouts(file)
