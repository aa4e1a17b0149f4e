"""Searches for devices that end early: what they leave open is never called proven."""

from __future__ import annotations

from functools import partial

import pytest

from gpusched.devices import fit
from gpusched.testing.given import Given
from tests.session.devices.conftest import Devices, exactly, gpu


def cluster(pods):
    """Two nodes of eight devices, and a gang of pods with two each."""
    c = Given().nodes(2)
    devices = Devices(c).a_class("gpu", 'device.driver == "gpu.example.com"')
    for node in ("node-0", "node-1"):
        devices.on_node(node, [gpu(number) for number in range(8)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.gang("g", pods, template="two")
    return c


def proof_of(c):
    """What is proven of the gang's places."""
    (bound,) = c.when.one_session().binds
    return bound.proof


def end_early(monkeypatch):
    """Searches for how many pods fit try five devices."""
    monkeypatch.setattr(fit, "count_pods", partial(fit.count_pods, steps_max=5))


def test_places_among_nodes_that_were_not_searched_to_the_end_are_not_proven(
    monkeypatch: pytest.MonkeyPatch,
):
    """Four pods fit one node; the short search finds two there, and says nothing of optimal."""
    assert proof_of(cluster(4)) == "optimal"
    end_early(monkeypatch)
    c = cluster(4)
    assert proof_of(c) == ""
    assert set(c.then.nodes().values()) == {"node-0", "node-1"}


def test_a_refusal_for_such_nodes_says_so(monkeypatch: pytest.MonkeyPatch):
    end_early(monkeypatch)
    c = cluster(8)
    c.when.one_session()
    assert c.then.started() == []
    assert "proves" not in c.then.why("g")
    assert "in time" in c.then.why("g"), c.then.why("g")
