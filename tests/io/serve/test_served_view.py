"""Lines of the log of decisions, as the view tells them."""

from __future__ import annotations

from types import SimpleNamespace

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.clock import SystemClock
from gpusched.config.model import DEFAULT
from gpusched.io.decisions.decision_log import DecisionLine
from gpusched.io.serve.publisher import ViewAddress
from gpusched.io.serve.served_view import ServedView
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.foreign_names import hide_names
from gpusched.testing.given import Given


def test_a_decision_names_nobody_of_other_namespaces(monkeypatch):
    """Given a gang that leaves for one of another namespace, then its own team is not told for which."""
    view = ServedView(
        ViewAddress(addresses=[("127.0.0.1", 0)]), None, clock=SystemClock(), daemon="d",
        leading=lambda: True, ready=lambda: "ok", scheduler_names=("gpusched",),
        hide=lambda text, reader: hide_names(text, reader, {"team-a", "team-b"}.__contains__),
    )  # fmt: skip
    told = []
    monkeypatch.setattr(view._publisher, "decided", told.append)
    gang = GangKey("Job", "team-a", "lost")
    sentence = "Job team-a/lost loses 2 pods for PodGroup team-b/secret"
    facts = {"why": "preempted for team-b/secret: it needs room for 2 pods"}
    view.decided(DecisionLine(gang, "loses", sentence, facts))
    (line,) = told
    somebody = "a workload of another namespace"
    assert line.message == (
        "Job team-a/lost loses 2 pods for a PodGroup of another namespace: "
        f"preempted for {somebody}: it needs room for 2 pods"
    )


def test_what_counts_as_evicted_again_follows_the_configuration_of_the_session(monkeypatch):
    """Given sessions under one window and then, after a reload, another one: what is said follows."""
    view = ServedView(
        ViewAddress(addresses=[("127.0.0.1", 0)]), None, clock=SystemClock(), daemon="d",
        leading=lambda: True, ready=lambda: "ok", scheduler_names=("gpusched",),
        hide=lambda text, _reader: text,
    )  # fmt: skip
    monkeypatch.setattr(view._publisher, "session", lambda _seen: None)
    monkeypatch.setattr(view, "_announcement", SimpleNamespace(leader=""))
    given = Given(config=DEFAULT)
    plan = given.nodes(1).when.one_session()
    said = [view._head().eviction_window_s]
    for window_s in (600.0, 0.0):
        limits = attrs.evolve(DEFAULT.limits, eviction_window_s=window_s)
        snapshot = attrs.evolve(given.snapshot, limits=limits)
        decision = SimpleNamespace(order=(), reserved=())
        view.session(
            snapshot, plan, decision, cache=given.cache, policy=SimpleNamespace(plugins=()),
            session_cache=SessionCache(),
        )  # fmt: skip
        said.append(view._head().eviction_window_s)
    assert said == [3600.0, 600.0, 0.0]
