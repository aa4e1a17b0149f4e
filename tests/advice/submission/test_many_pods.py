"""A Job of many pods costs an answer no more than its budget: each pod that a change changes counts."""

from __future__ import annotations

from gpusched.advice import advisor
from gpusched.advice.trial import TrialCluster
from tests.advice.clusters import node, queue, trial_of
from tests.advice.submission.manifests import ask, job, only_gang


def test_pods_that_are_changed_count_as_decisions_do(monkeypatch):
    # given a budget of 40 decisions, or of 400 pods that are changed
    monkeypatch.setattr(advisor, "DECISIONS_MAX", 40)
    monkeypatch.setattr(advisor, "DECISIONS_LEAST", 40)
    written = []
    apply = TrialCluster._apply
    monkeypatch.setattr(
        TrialCluster, "_apply", lambda self, edit: written.append(edit.plural) or apply(self, edit)
    )

    # when a Job is asked about that never starts, and of which some changes change all 100 pods
    answer = ask(trial_of(queue("a"), node("n0"), node("n1")), job(100))

    # then a few of these are tried, each with its way back, beside making the pods and what contradicts
    assert only_gang(answer).never
    assert written.count("pods") <= 2_400
