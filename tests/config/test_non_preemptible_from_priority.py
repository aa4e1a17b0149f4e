"""``nonPreemptibleFromPriority``: gangs of a priority class from that value on are not evicted."""

from __future__ import annotations

import attrs
import pytest

from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config
from gpusched.config.model import DEFAULT
from gpusched.testing.given import Given

BORDER = attrs.evolve(DEFAULT, non_preemptible_from_priority=100)


def reclaims(config, *, group=None, pod=""):
    """Whether a gang leaves that holds the node which queue b deserves and asks for.

    ``group`` has fields of its PodGroup, ``pod`` is the priority class of its pod.
    """
    c = Given(config=config).nodes(1, gpus=8)
    c.queue("a", limits={"deserved": {"nvidia.com/gpu": 0}})
    c.queue("b", limits={"deserved": {"nvidia.com/gpu": 8}})
    c.priority_class("train", 99).priority_class("build", 100)
    if group is not None:
        c.group("old", queue="a", min_member=1, **group)
    named = {"group": "old"} if group is not None else {"queue": "a"}
    c.pod("old-0", gpus=8, node="node-0", priority_class=pod, **named)
    c.gang("new", pods=1, gpus=8, queue="b")
    c.when.one_session()
    assert c.then.faults() == ()
    return bool(c.then.evicted())


@pytest.mark.parametrize(
    ("config", "name", "leaves"),
    [(BORDER, "train", True), (BORDER, "build", False), (DEFAULT, "build", True)],
)
@pytest.mark.parametrize("where", ["group", "pod", "pod of a group"])
def test_a_class_from_the_border_on_is_not_preemptible(config, name, leaves, where):
    """Named by the PodGroup, by a lone pod, or by the pods of a PodGroup that names none."""
    given = {
        "group": {"group": {"priority_class": name}},
        "pod": {"pod": name},
        "pod of a group": {"group": {}, "pod": name},
    }[where]
    assert reclaims(config, **given) == leaves


def test_what_a_gang_says_itself_counts_more():
    """``preemptible: true`` of a PodGroup lends its place whatever its class."""
    assert reclaims(BORDER, group={"priority_class": "build", "preemptible": True})


def test_a_changed_border_counts_for_classes_that_are_known():
    """A running daemon takes it over."""
    c = Given(config=BORDER).priority_class("build", 100)
    key = next(iter(c.cache.priorities.items))
    c.cache.use_priority_rules(DEFAULT)
    assert c.cache.priorities.items[key].preemptible is None
    c.cache.use_priority_rules(BORDER)
    assert c.cache.priorities.items[key].preemptible is False


@pytest.mark.parametrize("value", ["high", "1.5", "true", "3000000000"])
def test_what_is_no_priority_is_refused(value):
    """One sentence names the key and what it takes."""
    with pytest.raises(ConfigError, match="nonPreemptibleFromPriority must be a whole number"):
        load_config(f"nonPreemptibleFromPriority: {value}", source="f.yaml")
