"""Pods that run, each a gang of its own, are told what each would be told if nobody were like it."""

from __future__ import annotations

import random

import msgspec
import pytest

from gpusched.api.meta.identity import Owner
from gpusched.api.pod.pod import PodPhase
from gpusched.session.allocate.gang_placement import OPTIMAL
from gpusched.session.status import gang_status
from gpusched.testing import entities
from gpusched.testing.given import Given


def _running_pods(rng: random.Random) -> Given:
    c = Given().nodes(12, gpus=8).queue("a").queue("b")
    for number in range(96):
        name = f"runs-{number:02d}"
        owner = Owner("Job", f"job-{number}", entities.uid("Job", f"job-{number}", "default"))
        pod = entities.pod(
            name, entities.pod_class(gpus=1), queue=rng.choice(("a", "b", "c")),
            owner=rng.choice((None, None, owner)), priority=rng.choice((0, 10)),
            node=f"node-{number // 8}", slots=1 << number % 8, plan="p",
            phase=rng.choice((PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.PENDING)),
            scheduled=c.now - rng.choice((0, 60)),
        )  # fmt: skip
        c.cache.put_pod(
            msgspec.structs.replace(
                pod,
                proof=rng.choice(("", "", OPTIMAL, "time was up")),
                broken_since=rng.choice((0.0, 0.0, 0.0, c.now - 30)),
                strange_keys=rng.choice(((), (), ("gpusched.io/quque",))),
            )
        )
    return c


@pytest.mark.parametrize("seed", range(4))
def test_statuses_are_those_of_each_by_itself(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given pods that run and differ in what they are told, then what those alike are told once is told of each."""
    asked = []
    status = gang_status._gang_status

    def counted(session, gang, **more):
        asked.append(gang.key)
        return status(session, gang, **more)

    monkeypatch.setattr(gang_status, "_gang_status", counted)
    together = _running_pods(random.Random(seed)).when.one_session().gangs
    once = len(asked)
    monkeypatch.setattr(gang_status._RunningPods, "status", lambda _self, _gang: None)
    assert together == _running_pods(random.Random(seed)).when.one_session().gangs
    assert once < len(together) == len(asked) - once
    assert len({each.scheduled.message for each in together}) > 2
    assert len({each.admitted.message for each in together}) > 3
    assert any(each.told_members for each in together)
