"""What plugins are shown cannot be changed by them, by accident or by mistake."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

import attrs
import msgspec
import numpy as np
import pytest

from gpusched.api.meta import wire
from gpusched.api.meta.fields import read_labels
from gpusched.config.model import DEFAULT
from gpusched.plugin import ALLOW
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.policy import Policy
from gpusched.testing.given import Given

PLAIN = (int, str, float, bool, type(None), bytes, enum.Enum)


def weak_points(seen, path):
    """Places below an object where a plugin could write."""
    if isinstance(seen, PLAIN):
        return
    if isinstance(seen, np.ndarray):
        if seen.flags.writeable:
            yield f"{path}: an array that can be written"
    elif isinstance(seen, (tuple, frozenset)):
        for item in seen:
            yield from weak_points(item, f"{path}[]")
    elif isinstance(seen, MappingProxyType):
        for item in seen.values():
            yield from weak_points(item, f"{path}[]")
    elif attrs.has(type(seen)):
        if type(seen).__setattr__ is object.__setattr__:
            yield f"{path}: {type(seen).__name__} is not frozen"
        for field in attrs.fields(type(seen)):
            yield from weak_points(getattr(seen, field.name), f"{path}.{field.name}")
    elif isinstance(seen, msgspec.Struct):
        if not seen.__struct_config__.frozen:
            yield f"{path}: {type(seen).__name__} is not frozen"
        for name in seen.__struct_fields__:
            yield from weak_points(getattr(seen, name), f"{path}.{name}")
    else:
        yield f"{path}: a {type(seen).__name__}"


class Curious:
    """Keeps everything that it is shown."""

    name, api = "curious", 1

    def __init__(self):
        self.seen = {}

    def open(self, hooks, view):
        """Every kind of hook that shows something."""

        def check(gang):
            self.seen |= {"gang": gang, "minimum": view.minimum(gang)}
            self.seen |= {"queue": view.queue(gang.queue), "allocated": view.allocated(gang.queue)}
            self.seen |= {"capacity": view.capacity(), "namespace": view.namespace("default")}
            return ALLOW

        def allows(pod_class, nodes):
            self.seen |= {"class": pod_class, "nodes": nodes}

        def score(_pod_class, rows):
            if len(rows) == 2:  # all of them: the columns themselves
                self.seen["used"] = rows.used("nvidia.com/gpu")
                self.seen["allocatable"] = rows.allocatable("nvidia.com/gpu")

        def order(pod):
            self.seen["pod"] = pod
            return (0,)

        hooks.quota_check(check)
        hooks.node_filter("are odd", allows)
        hooks.node_score(score)
        hooks.pod_order(order)


@pytest.fixture
def shown():
    """Everything that a plugin is shown of a small cluster, by name."""
    shipped, curious = load_policy(DEFAULT), Curious()
    c = Given(policy=Policy(shipped.actions, ((curious,), *shipped.tiers)))
    c.nodes(2, gpus=8, rack="r").namespace("default", labels={"team": "a"})
    c.queue("a", limits={"capability": {"nvidia.com/gpu": 16}})
    c.gang("g", pods=2, gpus=4, queue="a").gang("h", pods=1, gpus=1, queue="a")
    c.when.bound()
    assert c.decision.faults == ()
    return curious.seen


def test_nothing_that_a_plugin_is_shown_can_be_changed(shown):
    """Entities are frozen, mappings are proxies, arrays are read-only."""
    found = [weak for name, seen in shown.items() for weak in weak_points(seen, name)]
    assert found == []
    assert {"gang", "queue", "class", "nodes", "used", "allocatable", "pod"} <= set(shown)


def test_writing_is_a_fault_of_the_plugin(shown):
    """What cannot be changed says so with an exception, which the guard puts down to it."""
    for name in ("used", "allocatable"):
        with pytest.raises(ValueError, match="read-only"):
            shown[name][:] = 0


def test_labels_of_the_api_are_proxies():
    """As decoded, with labels and without any."""
    for labels in ({"a": "b"}, None):
        made = read_labels(wire.Metadata(name="n", uid="u", resource_version="1", labels=labels))
        assert isinstance(made, Mapping)
        with pytest.raises(TypeError):
            made["x"] = "y"
