"""Whoever saw every change knows what one knows that reads the final objects alone."""

from __future__ import annotations

import logging

import pytest

from gpusched.io.watch.informers import KindEventHandler
from gpusched.lab.chaos.daemon_knowledge import differences
from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.generator import draw_script
from tests.populations import WHOLE


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def found(seed):
    return {each.finding.invariant for each in play_script(draw_script(seed)).seen}


@pytest.mark.parametrize("seed", [101, 159, *([3] if WHOLE else [])])
def test_any_road_leads_to_the_same_picture(seed):
    """Nodes, pods and queues that came, changed and went leave nothing behind."""
    assert found(seed) == set()


def test_what_is_left_of_a_node_that_went_is_found(monkeypatch):
    """Given daemons that never hear of a node's end, the new one knows fewer nodes."""
    apply = KindEventHandler.apply

    def deaf(self, event_type, item):
        if event_type != "DELETED" or type(item).__name__ != "Node":
            apply(self, event_type, item)

    monkeypatch.setattr(KindEventHandler, "apply", deaf)
    assert "I16" in found(4)


def test_parts_that_differ_are_told():
    """Both sides are said, also of what one of them does not know."""
    assert differences({"node a": 1, "node b": 2}, {"node a": 1}) == [
        "node b is 2 to who saw all of it, None to a new daemon"
    ]
