"""Quotas of many gangs at once: what a policy is sure of is not asked gang by gang, and nothing else changes."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations
from gpusched.config.model import DEFAULT
from gpusched.plugin import ALLOW, Reason, wait
from gpusched.pluginhost.registry import load_policy
from gpusched.session.admission import quota_order
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given

GPU = "nvidia.com/gpu"


def crowd(seed: int) -> Given:
    """Gangs of queues with and without limits, of which some are not preemptible."""
    rng = random.Random(seed)
    c = Given(config=DEFAULT, policy=load_policy(DEFAULT)).nodes(6, gpus=8)
    c.queue("a", limits={"capability": {GPU: rng.choice((8, 20))}}).queue("b", parent="a")
    c.queue("c", parent="a", limits={"capability": {GPU: rng.choice((3, 12))}}).queue("d")
    c.queue("e", limits={"guarantee": {GPU: 2}} if rng.random() < 0.3 else {})
    for number in range(rng.randrange(3, 16)):
        asks = {"gpus": rng.choice((0, 1, 2)), "cpu": 100 + number, "queue": rng.choice("bcde")}
        if rng.random() < 0.3:
            c.gang(f"gang-{number:02d}", pods=2, **asks)
        else:
            hints = GangAnnotations(preemptible=rng.random() < 0.8)
            c.pod(f"pod-{number:02d}", hints=hints, **asks)
    return c


def test_plans_are_those_of_gangs_asked_one_by_one(monkeypatch):
    """Given queues that suffice for all of theirs or not, then plans are the same, and some ask nobody."""
    sure = quota_order._are_all_sure
    found = []

    def noted(session: Any, gangs: Any) -> bool:
        found.append(sure(session, gangs))
        return found[-1]

    monkeypatch.setattr(quota_order, "_are_all_sure", noted)
    quick = [crowd(seed).when.one_session() for seed in range(40)]
    assert {*found} == {True, False}
    monkeypatch.setattr(quota_order, "_are_all_sure", lambda *_about: False)
    assert [crowd(seed).when.one_session() for seed in range(40)] == quick


def capped(for_all: Any) -> Any:
    """A policy that refuses whatever asks for more than a GPU."""

    @attrs.frozen
    class Capped:
        name: ClassVar[str] = "capped"
        api: ClassVar[int] = 1

        def open(self, hooks, view):
            def check(gang):
                few = view.minimum(gang).get(GPU) <= 1000
                return ALLOW if few else wait(Reason.WAITING_FOR_QUOTA, "asks for more than a GPU")

            hooks.quota_check(check)
            hooks.reserve_check(check, for_all=for_all)

    return Capped()


@pytest.mark.parametrize(
    ("for_all", "told"),
    [
        (lambda gangs: [False for _ in gangs], ""),
        (lambda gangs: [gang.key.name == "small" for gang in gangs], ""),
        (lambda gangs: [True for _ in gangs], "for_all is sure of gang default/large"),
        (lambda _gangs: [True], "not 2 bools"),
        (lambda _gangs: 1 / 0, "division by zero"),
    ],
)
def test_who_is_sure_of_too_much_fails_where_it_is_tried(for_all, told):
    """Given answers about all at once, then trials for authors hold them against those about each."""
    c = cluster_under(capped(for_all)).queue("q").nodes(2, gpus=8)
    c.gang("small", pods=1, gpus=1, queue="q").gang("large", pods=1, gpus=2, queue="q")
    c.when.one_session()
    faults = " ".join(c.then.faults())
    assert told in faults
    assert bool(faults) == bool(told)
    assert c.then.started() == ["small"]
