"""How far a priority class counts for a gang: quotas of the namespace, the system's classes, the rule."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.meta.identity import UID, ObjectKey, Rejected, ResourceVersion
from gpusched.api.policy.kinds import PriorityClass, QuotaScope, ResourceQuota
from gpusched.cache.gangs.priority import PriorityClassLimits, QuotaStore, changes_priority
from gpusched.testing import entities

HIGH = PriorityClass(
    name="high", uid=UID("h"), resource_version=ResourceVersion("1"), value=1000,
    preemption_policy="PreemptLowerPriority",
)  # fmt: skip
FREE = PriorityClassLimits()


def pods(*priorities, gpus=1):
    """Members with these priorities; 1000 is that of class high."""
    found = []
    for number, priority in enumerate(priorities):
        pod = entities.pod(f"p{number}", entities.pod_class(gpus=gpus), priority=priority)
        name = {1000: "high", 0: ""}.get(priority, f"class-{priority}")
        found.append(msgspec.structs.replace(pod, priority_class=name))
    return found


def quota(*terms, name="q", **left):
    """A quota with terms about classes."""
    return ResourceQuota(
        namespace="default", name=name, uid=UID(name), resource_version=ResourceVersion("1"),
        classes=tuple(terms), left=tuple(sorted(left.items())),
    )  # fmt: skip


def priority(limits, *priorities):
    """Of a gang that names class high."""
    return limits.count_priority(HIGH, pods(*priorities), field="priorityClassName").priority


LIMITED = PriorityClassLimits([quota(QuotaScope("In", ("high",)))])
OF_PODS = PriorityClassLimits(rule="ofPods")


@pytest.mark.parametrize(
    ("limits", "members", "counts"),
    [
        (FREE, (0, 0), 1000),
        (LIMITED, (0, 0), 0),
        (LIMITED, (1000, 0), 0),
        (LIMITED, (1000, 1000), 1000),
        (LIMITED, (2000, 1000), 1000),
        (LIMITED, (500, 0), 500),
        (LIMITED, (), 0),
        (OF_PODS, (0, 0), 0),
        (OF_PODS, (1000, 0), 1000),
        (OF_PODS, (5000, 0), 1000),
        (OF_PODS, (-5, -7), -5),
        (PriorityClassLimits(unreadable=["bad"]), (0, 0), 0),
    ],
)
def test_a_class_counts_as_far_as_its_pods_were_admitted(limits, members, counts):
    """Where something limits it; else as the configuration says."""
    assert priority(limits, *members) == counts


def test_a_lower_class_lowers():
    """Nobody limits that."""
    assert priority(OF_PODS, 5000, 2000) == 1000
    assert priority(LIMITED, 5000, 2000) == 1000


@pytest.mark.parametrize(
    ("term", "selects"),
    [
        (QuotaScope("In", ("high", "other")), True),
        (QuotaScope("In", ("other",)), False),
        (QuotaScope("NotIn", ("other",)), True),
        (QuotaScope("NotIn", ("high",)), False),
        (QuotaScope("Exists"), True),
        (QuotaScope("DoesNotExist"), False),
        (QuotaScope("OfTheFuture"), True),
    ],
)
def test_scopes_as_kubernetes_reads_them(term, selects):
    """What an unknown operator means nobody knows: it limits."""
    assert quota(term).selects("high") is selects
    assert (priority(PriorityClassLimits([quota(term)]), 0) == 0) is selects


def test_all_terms_of_a_quota_must_meet():
    """They are ANDed, and a quota without such terms is about something else."""
    both = quota(QuotaScope("Exists"), QuotaScope("In", ("other",)))
    assert not both.selects("high")
    assert not quota().selects("high")


def test_members_alone_give_no_more_than_all_have_where_it_is_limited():
    """A gang without a class of its own: one admitted pod does not raise the others."""
    assert FREE.of_pods(pods(1000, 0)) == 1000
    assert LIMITED.of_pods(pods(1000, 0)) == 0
    assert LIMITED.of_pods(pods(1000, 500, 0)) == 500
    assert LIMITED.of_pods(pods(1000, 1000)) == 1000
    assert FREE.of_pods(pods(2_000_000_000, 0)) == 0


def test_pods_to_come_have_a_class_while_the_quota_has_room_for_all():
    """By number and by what they ask for."""
    room = PriorityClassLimits(
        [quota(QuotaScope("Exists"), pods=2, **{"requests.nvidia.com/gpu": 4000})]
    )
    assert room.admission_clause("high", pods(1000, 1000, gpus=2)) == ""
    assert "not enough pods left" in room.admission_clause("high", pods(1000, 1000, 1000, gpus=1))
    assert "requests.nvidia.com/gpu" in room.admission_clause("high", pods(1000, 1000, gpus=3))
    assert FREE.admission_clause("high", pods(1000)) == ""


def test_what_a_namespace_limits_changes_with_its_quotas():
    """Put, changed, rejected, dropped; other namespaces are not touched."""
    shelf, key = QuotaStore(), ObjectKey("default", "q")
    shelf.put(key, quota(QuotaScope("Exists")))
    assert priority(shelf.namespace_limits("default"), 0) == 0
    assert priority(shelf.namespace_limits("other"), 0) == 1000
    shelf.put(key, quota())
    assert priority(shelf.namespace_limits("default"), 0) == 1000
    bad = Rejected(
        kind="ResourceQuota", key=key, uid=UID("q"), resource_version=ResourceVersion("2"),
        field="f", why="odd",
    )  # fmt: skip
    shelf.put(key, bad)
    assert priority(shelf.namespace_limits("default"), 0) == 0
    shelf.drop(key)
    assert priority(shelf.namespace_limits("default"), 0) == 1000
    shelf.use_rule("ofPods")
    assert priority(shelf.namespace_limits("default"), 0) == 0


def test_what_is_used_matters_only_where_classes_are_limited():
    """Quotas tell what is used with every pod."""
    assert not changes_priority(quota(), quota())
    assert not changes_priority(None, quota())
    plain = quota(QuotaScope("Exists"), pods=2)
    assert not changes_priority(plain, plain)
    assert changes_priority(plain, quota(QuotaScope("Exists"), pods=1))
    assert changes_priority(plain, quota())
    assert changes_priority(None, plain)
