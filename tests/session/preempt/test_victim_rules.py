"""Who is never a victim: what the system needs, and who has just started."""

from __future__ import annotations

import pytest

from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs

SECOND = 10**9


def test_the_namespace_of_the_system_is_safe(given):
    """What runs in kube-system stays, whatever its priority."""
    c = given.node("n1", gpus=1)
    c.pod(
        "proxy", namespace="kube-system", gpus=1, node="n1", slots=1, plan="p",
        scheduled=entities.BORN,
    )  # fmt: skip
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == []


def test_a_gang_with_one_critical_pod_is_safe(given):
    """One critical pod keeps its gang, also where the gang's own priority is low."""
    c = given.node("n1", gpus=2).priority_class("low", 1)
    c.group("svc", min_member=2, priority_class="low", phase="Running")
    for number, priority in enumerate((2_000_000_000, 1)):
        c.pod(
            f"svc-{number}", group="svc", gpus=1, node="n1", slots=1 << number, plan="p",
            priority=priority, scheduled=entities.BORN,
        )  # fmt: skip
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == []


@pytest.mark.parametrize(("ran", "evicted"), [(299.0, []), (300.0, ["low-0"])])
def test_a_young_gang_is_safe_for_its_minimum_runtime(ran, evicted):
    """Scenario 44: its own minRuntime counts, not that of its queue."""
    c = Given().queue("q", min_runtime_ns=900 * SECOND).node("n1", gpus=1)
    runs(c, "low", "n1", queue="q", since=c.now - ran, group={"min_runtime_ns": 300 * SECOND})
    c.gang("high", pods=1, gpus=1, queue="q", priority=9)
    c.when.one_session()
    assert c.then.evicted() == evicted


@pytest.mark.parametrize(("ran", "evicted"), [(899.0, []), (900.0, ["low-0"])])
def test_the_nearest_queue_that_says_how_long_counts(ran, evicted):
    """The leaf says nothing, its parent does, and its grandparent is not asked."""
    c = Given().queue("top", min_runtime_ns=5000 * SECOND)
    c.queue("mid", parent="top", min_runtime_ns=900 * SECOND).queue("q", parent="mid")
    runs(c.node("n1", gpus=1), "low", "n1", queue="q", since=c.now - ran)
    c.gang("high", pods=1, gpus=1, queue="q", priority=9)
    c.when.one_session()
    assert c.then.evicted() == evicted


def test_extras_of_a_young_gang_may_go(given):
    """Its minimum is safe, the member above it is not."""
    c = given.node("n1", gpus=3)
    runs(
        c, "low", "n1 n1 n1", min_member=2, since=c.now - 5,
        group={"min_runtime_ns": 300 * SECOND},
    )  # fmt: skip
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low-2"]
    c.gang("more", pods=2, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low-2"]
