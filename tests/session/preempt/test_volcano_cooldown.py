"""``volcano.sh/cooldown-time`` protects as minRuntime does, from the object that carries it."""

from __future__ import annotations

import json

import pytest

from gpusched.api.foreign import kinds
from gpusched.api.meta.identity import format_time
from gpusched.api.pod.decode import PODS
from gpusched.api.pod.pod import Pod
from gpusched.testing.given import Given

COOLDOWN = "volcano.sh/cooldown-time"
READY = "PodScheduled"


def running(c: Given, name: str, since: float, *, group: str = "", **annotations: str) -> Given:
    """A pod of one GPU as the API shows it, bound by this scheduler."""
    labels = {"gpusched.io/pod-group": group} if group else {}
    started = format_time(since)
    thing = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "1",
            "creationTimestamp": started,
            "labels": labels,
            "annotations": {
                "gpusched.io/plan": "p",
                "gpusched.io/slots": "0",
                "gpusched.io/fence": "a/1",
                **annotations,
            },
        },
        "spec": {
            "schedulerName": "gpusched",
            "nodeName": "n1",
            "priority": 0,
            "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": READY, "status": "True", "lastTransitionTime": started}],
        },
    }
    line = json.dumps({"type": "ADDED", "object": thing}).encode()
    pod = PODS.decode_event(line).item
    assert isinstance(pod, Pod), pod
    c.cache.put_pod(pod)
    return c


@pytest.mark.parametrize(("ran", "gone"), [(89.0, []), (90.0, ["low"])])
def test_a_pod_is_safe_for_its_cooldown(given, ran, gone):
    """Volcano's word for how long a pod may not be taken back."""
    c = given.node("n1", gpus=1)
    running(c, "low", c.now - ran, **{COOLDOWN: "1m30s"})
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == gone


@pytest.mark.parametrize(("ran", "gone"), [(89.0, []), (90.0, ["low"])])
def test_members_of_a_volcano_group_say_it_for_the_group(given, ran, gone):
    """Its PodGroup has no field for it: Volcano reads the pods' annotations."""
    c = given.node("n1", gpus=1)
    c.group("g", min_member=1, phase="Running", source=kinds.VOLCANO)
    running(c, "low", c.now - ran, group="g", **{COOLDOWN: "90s"})
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == gone


def test_the_word_of_our_own_group_counts_alone(given):
    """Who writes our PodGroup says there how long it is safe."""
    c = given.node("n1", gpus=1)
    c.group("g", min_member=1, phase="Running", min_runtime_ns=10**9)
    running(c, "low", c.now - 30.0, group="g", **{COOLDOWN: "90s"})
    c.gang("high", pods=1, gpus=1, priority=9)
    c.when.one_session()
    assert c.then.evicted() == ["low"]


def test_it_protects_from_claims_of_other_queues_too(given):
    """Who deserves the GPU waits until the cooldown is over."""
    c = given.node("n1", gpus=1).queue("b", limits={"deserved": {"nvidia.com/gpu": 1}})
    c.queue("default", limits={"deserved": {"nvidia.com/gpu": 0}})
    running(c, "low", c.now - 30.0, **{COOLDOWN: "90s"})
    c.gang("due", pods=1, gpus=1, queue="b")
    c.when.one_session()
    assert c.then.evicted() == []
    c.now += 60.0
    c.when.one_session()
    assert c.then.evicted() == ["low"]
