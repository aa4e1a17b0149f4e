"""The key of equal gangs: every field is in it, or stands here with the reason why none reads it."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import pytest

from gpusched.api.affinity.pod_terms import PodTerm
from gpusched.api.affinity.selector import Selector, Toleration
from gpusched.api.devices.device_match import DeviceMatchRequest
from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.api.devices.gpu_share import GpuShare
from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.api.gang.pod_group import GangTerms, PodGroup, SubGroup, TopologyRequest
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.api.pod.pod_class import class_digest
from gpusched.cache.gangs.equivalence import Omit, lone_key, placement_key, without_length
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.session.state.equivalence import EquivalenceClasses
from gpusched.testing import entities
from gpusched.testing.given import Given

MANY = Resources.of({"cpu": 7})
TERM = PodTerm("host", Selector())

COUNTED = "counts members that are not to be placed; what they hold is in the key"
TOLD = "is written to the status and decides no place"
IDENTITY = "tells one gang from another: equal gangs differ in it"
ORDER = "orders gangs; who holds out for a level, where it counts, is equal to no other"
IN_GANG = "stands in the gang itself, which has it from here"
PAIR_RULE = "is read by rules between pods and by volumes alone, which callers ask about first"
PLACED = "belongs to pods with a place; a gang that has such is equal to no other"

GANG = {
    "key": GangKey("PodGroup", "other", "gang"),
    "queue": "other", "priority": 1, "min_member": 3,
    "min_roles": (("worker", 1),), "ready_roles": (("worker", 1),),
    "topology": TopologyRequest("rack"),
    "sub_groups": (SubGroup("a", 1, TopologyRequest()),),
    "parent_groups": (SubGroup("s", 0, TopologyRequest(), min_sub_groups=1),),
    "min_sub_groups": 1, "ready_sub_groups": (("a", 1),),
    "pod_sets": (), "placed": "a place", "succeeded_counted": 1, "allocated": MANY, "leaving_allocated": MANY,
    "pending_requests": MANY, "error": ("InvalidSpec", "why"), "terms": GangTerms(preemptible=False),
    "expected_count": 2, "job": "a job", "pod_group": "a group", "accounts": ("queue/user/ann",),
}  # fmt: skip
GANG_UNREAD = {
    "uid": IDENTITY, "generation": IDENTITY, "created": ORDER, "warning": TOLD,
    "gated": COUNTED, "leaving": COUNTED, "running": COUNTED, "succeeded": COUNTED,
    "failed": COUNTED, "leaving_placed": COUNTED, "job_failure": TOLD, "eviction_warning": TOLD,
    "turn": ORDER, "evictions": TOLD, "tree": TOLD, "gates": TOLD, "key_warning": TOLD,
    "creator": "is in the accounts, where a queue limits users",
}  # fmt: skip
POD_SET = {"role": "other", "sub_group": "other", "pod_class": "other", "pods": ()}
TOPOLOGY = {"required": "rack", "preferred": "rack", "max_wait_ns": 1}
SUB_GROUP = {
    "name": "b",
    "min_member": 2,
    "topology": TopologyRequest("rack"),
    "parent": "s",
    "min_sub_groups": 1,
}
TERMS = {
    each.name: {
        bool: True,
        int: 1,
        str: "other",
        GpuTypeRequest: GpuTypeRequest(same_type=True),
        DeviceMatchRequest: DeviceMatchRequest(same_type=True),
    }.get(type(each.default), False)
    for each in attrs.fields(GangTerms)
}
"""Terms are in the key as a whole: a new field needs no line here."""
JOB = {"parallelism": 7, "deadline_s": 7, "suspended": True}
GROUP = {"min_resources": MANY}
GROUP_UNREAD = {
    "namespace": IN_GANG, "name": IDENTITY, "uid": IDENTITY, "resource_version": IDENTITY,
    "generation": IDENTITY, "created": ORDER, "queue": IN_GANG, "min_member": IN_GANG,
    "min_task_member": IN_GANG, "priority_class": IN_GANG, "terms": IN_GANG,
    "sub_groups": IN_GANG, "min_sub_groups": IN_GANG, "topology": IN_GANG,
    "phase": TOLD, "conditions": TOLD,
    "status": TOLD, "deleting": "is the gang's trouble", "source": TOLD, "warning": TOLD,
    "turn": ORDER, "evictions": IN_GANG, "native": IN_GANG, "creator": IN_GANG, "hold": "is the gang's trouble", "strange_keys": TOLD,
    "move": "is the nomination of a gang that is moved, asked for by the gang's own key",
}  # fmt: skip
POD = {"pod_class": "other", "role": "other", "sub_group": "other", "deadline_s": 9}
POD_UNREAD = {
    "namespace": IN_GANG, "name": IDENTITY, "uid": IDENTITY, "resource_version": IDENTITY,
    "created": ORDER, "labels": PAIR_RULE, "claims": PAIR_RULE, "own_claims": PAIR_RULE,
    "owner": IN_GANG, "scheduler": IN_GANG, "priority": IN_GANG, "priority_class": IN_GANG,
    "group": IN_GANG, "queue": IN_GANG, "hints": IN_GANG, "family": IN_GANG,
    "rank": "orders equal pods", "block": "orders equal pods",
    "creator": IN_GANG, "node": PLACED, "phase": PLACED, "deleting": PLACED, "scheduled": PLACED, "slots": PLACED,
    "plan": PLACED, "charge": PLACED, "fence": PLACED, "refusal": PLACED, "proof": PLACED, "seal": PLACED,
    "generated_claims": "are names alone; whether the claims are there is asked beside the key",
    "extended": "is in the claims of its class, where devices serve any of it",
    "extended_told": "is what was told of an earlier attempt",
    "slots_error": PLACED, "broken_since": PLACED, "ended": PLACED, "gated": "a gated pod is in no task",
    "gates": "a gated pod is in no task", "hold": "is the gang's trouble", "strange_keys": TOLD,
    "unschedulable_reason": TOLD, "unschedulable": TOLD, "unschedulable_since": TOLD,
    "nominated": "is the nomination of this very gang, asked for by its key",
    "may_preempt": "members that may not are taken out of a claimant before it has a key",
}  # fmt: skip
POD_CLASS = {
    "requests": MANY, "gpu": "other", "gpus": 9, "node_selector": (("a", "b"),),
    "affinity": (), "preferred": ((1, None),),
    "tolerations": (Toleration("a", "Exists", "", ""),), "unsupported": "why",
    "pod_affinity": (TERM,), "pod_anti_affinity": (TERM,), "preferred_pod_affinity": ((1, TERM),),
    "preferred_pod_anti_affinity": ((1, TERM),), "spread": ("x",), "soft_spread": ("x",),
    "ports": ("x",), "uses_claims": True, "aligned": (MANY,), "share": GpuShare(500),
    "claims": (PodClaim(name="gpu", template="t"),),
}  # fmt: skip


def base(*, job: bool = False) -> Gang:
    """A gang of two pods of one class, of a PodGroup or of a Job."""
    c = Given()
    if job:
        c.job("g", parallelism=2, completions=2, indexed=True, suspended=False)
        gang = attrs.evolve(
            base(), pod_group=None, job=c.cache.jobs.items[ObjectKey("default", "g")]
        )
        return attrs.evolve(gang, key=GangKey("Job", "default", "g"))
    c.gang("g", pods=2, gpus=1)
    (gang,) = c.cache.take_snapshot(now=c.now).gangs
    return gang


def placed(gang: Gang) -> tuple[Placed, ...]:
    """A place for its first pod."""
    return (Placed(gang.pod_sets[0].pods[0], "n1", confirmed=True),)


def with_pod_set(gang: Gang, **fields: Any) -> Gang:
    """The gang with other fields in its only pod set."""
    if fields.get("pod_class") == "other":
        fields["pod_class"] = entities.pod_class(gpus=2)
    return attrs.evolve(gang, pod_sets=(attrs.evolve(gang.pod_sets[0], **fields),))


def names(kind: type) -> set[str]:
    """Fields of an attrs class or of a struct."""
    if issubclass(kind, msgspec.Struct):
        return set(kind.__struct_fields__)
    return {each.name for each in attrs.fields(kind)}


@pytest.mark.parametrize(
    ("kind", "in_key", "unread"),
    [
        (Gang, GANG, GANG_UNREAD),
        (GangTerms, TERMS, {}),
        (TopologyRequest, TOPOLOGY, {}),
        (SubGroup, SUB_GROUP, {}),
        (PodSet, POD_SET, {}),
        (
            PodClass,
            POD_CLASS,
            {
                "digest": "is made of the others",
                "namespace": "is that of the claims, where there are any",
                "charge": "gives the class another digest, where the cache sets it",
            },
        ),
        (Pod, POD, POD_UNREAD),
        (PodGroup, GROUP, GROUP_UNREAD),
    ],
)
def test_each_field_is_in_the_key_or_told_why_not(kind, in_key, unread):
    """A new field of these classes fails here until somebody has decided about it."""
    assert names(kind) == set(in_key) | set(unread)
    assert not set(in_key) & set(unread)


@pytest.mark.parametrize("field", sorted(GANG))
def test_gangs_that_differ_in_a_field_have_different_keys(field):
    gang = base()
    other = {
        "placed": lambda: attrs.evolve(gang, placed=placed(gang)),
        "job": lambda: attrs.evolve(gang, job=base(job=True).job),
        "pod_group": lambda: attrs.evolve(gang, pod_group=None),
    }.get(field, lambda: attrs.evolve(gang, **{field: GANG[field]}))()
    assert placement_key(other) != placement_key(gang)


@pytest.mark.parametrize("field", sorted(GANG_UNREAD))
def test_gangs_that_differ_in_nothing_that_is_read_have_one_key(field):
    gang = base()
    other: Any = {
        "uid": UID("other"), "warning": "told", "leaving_placed": placed(gang), "created": 7.0,
    }.get(field, 5)  # fmt: skip
    assert placement_key(attrs.evolve(gang, **{field: other})) == placement_key(gang)


def test_gangs_that_differ_in_a_part_of_their_terms_have_different_keys():
    gang = base()
    parted = attrs.evolve(gang, sub_groups=(SubGroup("a", 1, TopologyRequest()),))
    part, changes = parted.sub_groups[0], []
    for field, value in TERMS.items():
        changes.append((gang, attrs.evolve(gang, terms=attrs.evolve(gang.terms, **{field: value}))))
    for field, value in TOPOLOGY.items():
        topology = attrs.evolve(gang.topology, **{field: value})
        changes.append((gang, attrs.evolve(gang, topology=topology)))
    for field, value in SUB_GROUP.items():
        sub_groups = (attrs.evolve(part, **{field: value}),)
        changes.append((parted, attrs.evolve(parted, sub_groups=sub_groups)))
    for field, value in GROUP.items():
        group = attrs.evolve(gang.pod_group, **{field: value})
        changes.append((gang, attrs.evolve(gang, pod_group=group)))
    for field, value in POD_SET.items():
        changes.append((gang, with_pod_set(gang, **{field: value})))
    assert [one for one, other in changes if placement_key(one) == placement_key(other)] == []


@pytest.mark.parametrize("field", sorted(JOB))
def test_gangs_of_jobs_that_differ_in_what_walltimes_read_have_different_keys(field):
    gang = base(job=True)
    gang = attrs.evolve(gang, expected_count=2)
    other = attrs.evolve(gang, job=attrs.evolve(gang.job, **{field: JOB[field]}))
    assert placement_key(other) != placement_key(gang)


def test_gangs_whose_pods_have_other_deadlines_have_different_keys():
    gang = base()
    first, *others = gang.pod_sets[0].pods
    hurried = msgspec.structs.replace(first, deadline_s=9)
    other = with_pod_set(gang, pods=(hurried, *others))
    assert placement_key(other) != placement_key(gang)
    assert placement_key(other, without=Omit.LENGTH) == placement_key(gang, without=Omit.LENGTH)


@pytest.mark.parametrize("field", sorted(POD_CLASS))
def test_pod_classes_that_differ_in_a_field_have_different_digests(field):
    one = entities.pod_class(gpus=1)
    assert class_digest(attrs.evolve(one, digest="", **{field: POD_CLASS[field]})) != one.digest


def test_what_a_caller_compares_itself_is_left_out_by_name():
    gang = base()
    long = attrs.evolve(gang, terms=attrs.evolve(gang.terms, expected_duration_ns=9))
    assert placement_key(long, without=Omit.LENGTH) == placement_key(gang, without=Omit.LENGTH)
    pods = gang.pod_sets[0].pods
    small = attrs.evolve(with_pod_set(gang, pods=pods[:1]), min_member=1, pending_requests=NOTHING)
    assert placement_key(small, without=Omit.SIZE) == placement_key(gang, without=Omit.SIZE)
    assert placement_key(small, without=Omit.LENGTH) != placement_key(gang, without=Omit.LENGTH)
    few, many = (attrs.evolve(gang, expected_count=count) for count in (1, 2))
    assert placement_key(few, without=Omit.SIZE) == placement_key(many, without=Omit.SIZE)
    assert placement_key(few, without=Omit.SIZE) != placement_key(gang, without=Omit.SIZE)
    other = attrs.evolve(gang, key=GangKey("PodGroup", "other", "g"))
    assert placement_key(other) != placement_key(gang)
    namespace = Omit.NAMESPACE
    assert placement_key(other, without=namespace) == placement_key(gang, without=namespace)


def test_classes_of_gangs_of_one_pod_are_those_of_their_keys():
    """Which are found by a part of the key, and what thousands have in common is looked up."""
    gang = base()
    pod_set = gang.pod_sets[0]
    one = with_pod_set(gang, pods=pod_set.pods[:1])
    one = attrs.evolve(one, min_member=1, pending_requests=pod_set.pod_class.charged)
    alone = attrs.evolve(one, key=GangKey("Pod", "default", "alone"), pod_group=None, job=None)
    hurried = msgspec.structs.replace(pod_set.pods[0], deadline_s=9)
    found = [one, alone, gang, attrs.evolve(alone), with_pod_set(alone, pods=(hurried,))]
    changes = {**GANG, **dict.fromkeys(GANG_UNREAD, 5), "leaving_placed": placed(gang)}
    changes |= {"job": base(job=True).job, "placed": placed(gang), "pod_group": gang.pod_group}
    changes |= {"warning": "told", "pod_sets": gang.pod_sets}
    found += [attrs.evolve(alone, **{field: value}) for field, value in changes.items()]
    for field, value in TERMS.items():
        terms = attrs.evolve(alone.terms, **{field: value})
        found += [attrs.evolve(alone, terms=attrs.evolve(terms)) for _ in range(2)]
    for field, value in POD_SET.items():
        found.append(with_pod_set(alone, **{field: value}))
    classes = EquivalenceClasses()
    kinds = [classes.class_of(each) for each in found]
    keys = [placement_key(each, without=Omit.NAMESPACE) for each in found]
    told = [(key, kind) for key, kind in zip(keys, kinds, strict=True) if kind is not None]
    assert len({key for key, _ in told}) == len({kind for _, kind in told}) == len(set(told)) > 20
    wide = [(without_length(key), kind.timeless) for key, kind in told]
    assert len({key for key, _ in wide}) == len({kind for _, kind in wide}) == len(set(wide)) > 20
    assert sum(lone_key(each) is not None for each in found) > 20
