"""Two plans that differ anywhere have a difference that says where."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs

from gpusched.api.gang.move_record import MoveRecord, MoveTarget
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.queue import QueueUsage
from gpusched.io.decisions.plan_json import canonical_json, plan_as_json
from gpusched.lab.recordings.replay import plan_differences
from gpusched.session.state.plan import (
    Eviction,
    GangBind,
    GangStatus,
    GangStop,
    JobSuspendChange,
    MoveOrder,
    PendingReason,
    Plan,
    PodBind,
    PoolStatus,
    PreemptionPlan,
    QueueStatus,
    Undo,
)

GANG, OTHER = GangKey("PodGroup", "a", "g"), GangKey("Job", "a", "j")
POD = ObjectKey("a", "p")
GPUS = Resources.of({"nvidia.com/gpu": 8})
ASK = PendingReason(reason="InsufficientResources", message="needs 2; 1 fits")
EVICTION = Eviction(
    key=ObjectKey("a", "v"), uid=UID("v"), gang=OTHER, queue="q", node="n1", action="preempt",
    reason="Preempted", message="for a/g", gpu_seconds=7,
)  # fmt: skip
SWITCH = JobSuspendChange(
    key=ObjectKey("a", "j"), uid=UID("j"), suspend=True, reason="Preempted", message="paused",
    action="preempt", parallelism=3, node_selector=(("pool", "h100"),),
    annotations=(("gpusched.io/admitted", "x"),),
)  # fmt: skip
STOP = GangStop(gang=OTHER, uid=UID("j"), generation=1, evictions=(EVICTION,), pause=SWITCH)
MOVE = MoveOrder(gang=OTHER, uid=UID("j"), move=MoveRecord(5.0, (MoveTarget("n3", 2, GPUS),)))
FULL = Plan(
    revision=3,
    binds=(
        GangBind(
            gang=GANG, uid=UID("g"), generation=1, queue="q", min_member=1, placed=0,
            binds=(PodBind(POD, UID("p"), "n1", UID("n"), (1 << 100) | 1, 0, GPUS),), proof="best",
        ),
    ),
    undos=(Undo(gang=OTHER, pods=((POD, UID("p")),), message="never whole"),),
    preemptions=(
        PreemptionPlan(
            gang=GANG, uid=UID("g"), generation=1, nominations=((POD, UID("p"), "n2"),),
            stops=(STOP,), action="preempt", message="makes room", moves=(MOVE,),
        ),
    ),
    stops=(STOP,),
    job_changes=(SWITCH,),
    gangs=(
        GangStatus(
            gang=GANG, uid=UID("g"), generation=1, queue="q", phase="Pending", admitted=ASK,
            is_admitted=True, scheduled=ASK, is_scheduled=False, waiting_pods=((POD, UID("p")),),
            counts=(1, 2, 3, 4), pending_reason=ASK, queue_position=2, estimated_start=9.5,
            nominated=((UID("p"), "n2"),), preempted=ASK, placement=(("rack", "r1"),),
        ),
    ),
    queues=(
        QueueStatus(
            name="q", uid=UID("q"), generation=1, state="Open", allocated=GPUS, requested=GPUS,
            borrowed=GPUS, pending=1, inqueue=2, running=3, is_ready=True, ready=ASK,
            fair_share=GPUS, usage=QueueUsage(5.0, (("gpu", 1),), (("gpu", 2),)),
            node_pools=(PoolStatus("h100", GPUS, GPUS),),
        ),
    ),
)  # fmt: skip


def plain() -> Any:
    return json.loads(canonical_json(plan_as_json(FULL)))


def leaves(value: Any, path: tuple[Any, ...]) -> Any:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):
            yield from leaves(each, (*path, key))
        else:
            yield (*path, key)


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"


def test_every_leaf_of_a_plan_is_compared() -> None:
    """What has no sentence of its own is told by its path."""
    paths = list(leaves(plain(), ()))
    assert len(paths) > 120
    for path in paths:
        other = plain()
        holder = other
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = changed(holder[path[-1]])
        assert list(plan_differences(plain(), other)), path


def test_numbers_that_json_lacks_are_text() -> None:
    """A policy's estimate may be endless; the plan can be written all the same."""
    endless = Plan(revision=1, gangs=(attrs.evolve(FULL.gangs[0], estimated_start=math.inf),))
    assert b'"estimated_start":"inf"' in canonical_json(plan_as_json(endless))


def test_equal_plans_have_none() -> None:
    """Not one."""
    assert list(plan_differences(plain(), plain())) == []


def test_each_part_that_is_gone_is_told_in_words() -> None:
    """A gang is not bound, nobody leaves, a Job is not paused, another sentence."""
    said = {
        (each.about, each.what): each.then for each in plan_differences(plain(), {"revision": 3})
    }
    assert said["PodGroup/a/g", "victims"] == "a/v"
    assert said["PodGroup/a/g", "pauses"] == "a/j"
    assert said["PodGroup/a/g", "room is made"] == "preempt: makes room"
    assert said["Job/a/j", "pod a/v"] == "is evicted from n1: for a/g"
    assert said["Job/a/j", "Job"] == "is paused with 3 pods on pool=h100: paused"
    assert said["PodGroup/a/g", "scheduled"] == "no, InsufficientResources: needs 2; 1 fits"
    assert said["queue q", "allocated"] == "nvidia.com/gpu 8"


def test_another_place_names_node_and_gpus() -> None:
    """Slots beyond 64 are told like others."""
    other = plain()
    other["claims"] = []
    before = {**plain(), "claims": []}
    other["binds"][0]["binds"][0]["node"] = "n9"
    (found,) = plan_differences(before, other)
    assert str(found) == (
        "PodGroup/a/g: pod a/p: goes to n1 with GPUs 0,100 as rank 0 -> "
        "goes to n9 with GPUs 0,100 as rank 0"
    )
