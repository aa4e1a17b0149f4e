"""Pods that run or wait, each a gang of its own, are told what each would be told if nobody were like it."""

from __future__ import annotations

import random

import msgspec
import pytest

from gpusched.api.meta.identity import Owner
from gpusched.api.pod.pod import PodPhase
from gpusched.config.model import DEFAULT
from gpusched.session.allocate.gang_placement import OPTIMAL
from gpusched.session.status import gang_status
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.queues.test_reclaim_gates import deserves


def _waiting_pods(rng: random.Random) -> Given:
    """Who waits behind pods of a queue that lends, with a budget that is over and terms of all kinds."""
    c = Given(config=DEFAULT).nodes(6, gpus=8)
    c.queue("lends", limits=deserves(8)).queue("takes", limits=deserves(40))
    c.queue("full", limits={"capability": {entities.GPU: 1}})
    for number in range(48):
        c.pod(
            f"runs-{number:02d}", gpus=1, queue="lends", node=f"node-{number // 8}",
            slots=1 << number % 8, plan="p", phase=PodPhase.RUNNING, scheduled=c.now - 90_000,
        )  # fmt: skip
    for number in range(80):
        pod = entities.pod(
            f"waits-{number:02d}", entities.pod_class(gpus=rng.choice((1, 1, 1, 9))),
            queue=rng.choice(("takes", "takes", "full", "none")), gated=rng.random() < 0.1,
            created=entities.BORN + rng.randrange(3),
        )  # fmt: skip
        strange = rng.choice(((), (), ("gpusched.io/quque",)))
        c.cache.put_pod(msgspec.structs.replace(pod, strange_keys=strange))
    for number in range(4):
        c.group(f"group-{number}", queue="takes", min_member=1)
        c.pod(f"member-{number}", group=f"group-{number}", gpus=1)
        c.job(f"job-{number}", parallelism=1, completions=1, suspended=True, queue="takes")
    return c


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
    monkeypatch.setattr(gang_status._PodsAlike, "status", lambda *_about: None)
    assert together == _running_pods(random.Random(seed)).when.one_session().gangs
    assert once < len(together) == len(asked) - once
    assert len({each.scheduled.message for each in together}) > 2
    assert len({each.admitted.message for each in together}) > 3
    assert any(each.told_members for each in together)


@pytest.mark.parametrize("seed", range(4))
def test_statuses_of_those_that_wait_are_those_of_each_by_itself(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given pods that are promised room or refused, then each is told its own place, and the same else."""
    together = _waiting_pods(random.Random(seed)).when.one_session().gangs
    found = []
    status = gang_status._PodsAlike.status

    def kept(self, gang, about):
        found.append(status(self, gang, about) is not None and not gang.placed)

    monkeypatch.setattr(gang_status._PodsAlike, "status", kept)
    assert together == _waiting_pods(random.Random(seed)).when.one_session().gangs
    assert sum(found) > 24
    waiting = [each for each in together if not each.is_scheduled]
    assert sum(bool(each.nominated) for each in waiting) > 8
    assert len({each.scheduled.message for each in waiting}) > 3
    assert any(each.estimated_start or each.queue_position for each in waiting)
