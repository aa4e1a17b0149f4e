"""Lines of the log of decisions, as the view tells them."""

from __future__ import annotations

from gpusched.api.meta.identity import GangKey
from gpusched.base.clock import SystemClock
from gpusched.io.decisions.decision_log import DecisionLine
from gpusched.io.serve.publisher import ViewAddress
from gpusched.io.serve.served_view import ServedView
from gpusched.session.status.foreign_names import hide_names


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
