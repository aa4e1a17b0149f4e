"""Which pods of other schedulers wake a session."""

from __future__ import annotations

import pytest

from gpusched.testing import entities


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_pod_that_waits_for_another_scheduler_wakes_nobody(given, gpus):
    """Given pods of kube-scheduler that wait, when they come, change and go, then nothing is to be decided."""
    c, told = given.nodes(1, gpus=8), []
    c.cache.on_change.append(lambda: told.append("changed"))
    theirs = {"scheduler": "default-scheduler", "gpus": gpus}
    c.pod("web", **theirs).pod("web", labels={"app": "web"}, **theirs).gone("web")
    assert told == []


@pytest.mark.parametrize(
    "about",
    [
        {"node": "node-0"},
        {"nominated": "node-0"},
        {"group": "train"},
        {"claims": ("volume",), "node": "node-0"},
    ],
)
def test_a_pod_of_others_that_may_take_room_does(given, about):
    """Given one with a node, a promised one or a group, when it comes and when it goes, then sessions are held."""
    c, told = given.nodes(1, gpus=8), []
    c.cache.on_change.append(lambda: told.append("changed"))
    c.pod("web", scheduler="default-scheduler", gpus=2, **about)
    assert told == ["changed"]
    c.gone("web")
    assert told == ["changed", "changed"]


def test_a_pod_of_others_wakes_a_session_when_it_is_bound(given):
    """Given one that waited, when it gets a node, then what is free is another, and a gang finds no room."""
    c, told = given.nodes(1, gpus=2).gang("train", pods=1, gpus=2), []
    c.pod("web", scheduler="default-scheduler", gpus=1)
    c.cache.on_change.append(lambda: told.append("changed"))
    c.pod("web", scheduler="default-scheduler", gpus=1, node="node-0")
    assert told == ["changed"]
    c.when.one_session()
    assert "train" not in c.then.started()
    assert entities.GPU in c.then.why("train")
