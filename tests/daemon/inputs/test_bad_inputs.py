"""Objects and clocks as they should not be, on the whole daemon: told, survived, nothing lost."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from gpusched.devcluster.apimachinery.status import StatusError

GPU = "nvidia.com/gpu"
DAY = 86_400.0
QUEUES = "queues.scheduling.gpusched.io"
GROUPS = "podgroups.scheduling.gpusched.io"
CLASSES = "priorityclasses.scheduling.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"


@attrs.define
class Set:
    """The clock of a machine whose wall time somebody sets; everything else goes on as it was.

    Attributes:
        true: the cluster's.
        wrong_s: seconds by which the machine is ahead.
    """

    true: Any
    wrong_s: float = 0.0

    def now(self) -> float:
        """Wall time as it was set."""
        return self.true.now() + self.wrong_s

    def monotonic(self) -> float:
        """Never set."""
        return self.true.monotonic()

    def boottime(self) -> float:
        """Never set."""
        return self.true.boottime()

    async def sleep(self, seconds: float) -> None:
        """In true seconds."""
        await self.true.sleep(seconds)


def make(w, resource, kind, version, name, **body):
    """Create an object."""
    namespaced = {"namespace": "default"} if kind == "PodDisruptionBudget" else {}
    return w.client.create(
        resource,
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespaced}, **body},
    )


def queue(w, name, **spec):
    """Make a queue."""
    return make(w, QUEUES, "Queue", "scheduling.gpusched.io/v1alpha1", name, spec=spec)


def priority(w, name, value):
    """Make a PriorityClass."""
    make(w, CLASSES, "PriorityClass", "scheduling.k8s.io/v1", name, value=value)


def gang(w, name, count, *, queue="default", gpus=8, job=None, **spec):
    """A PodGroup and a Job whose pods belong to it."""
    w.group(name, queue=queue, **{"minMember": count, **spec})
    w.job(name, count, gpus=gpus, group=name, **(job or {}))


def refused(write):
    """Why the API refused a write, empty when it did not."""
    try:
        write()
    except StatusError as fault:
        return str(fault)
    return ""


def evicted(w):
    """Names of pods that the daemons evicted."""
    return [each.path.split("/")[-2] for each in w.journal if each.path.endswith("/eviction")]


async def comes_to_rest(w):
    """Nothing is written while nothing changes."""
    await w.clock.sleep(90)
    writes = len(w.journal)
    await w.clock.sleep(60)
    assert w.journal[writes:] == []


@pytest.mark.parametrize("wrong_s", [DAY, -DAY])
@pytest.mark.parametrize("from_the_start", [True, False])
def test_the_machines_clock_is_a_day_off(play, wrong_s, from_the_start):
    """Nobody is a day older: maxRuntime, minRuntime, reservations and estimates stay as they are."""

    async def scenario(w):
        await w.start(nodes=4)
        true = w.clock
        w.clock = Set(true, wrong_s if from_the_start else 0.0)
        machine = w.clock
        priority(w, "high", 1000)
        queue(w, "bounded", maxRuntime="8h", deserved={GPU: "8"})
        queue(w, "calm", minRuntime="1h", deserved={GPU: "24"})
        w.daemon()
        gang(w, "long", 1, queue="bounded")
        gang(w, "safe", 2, queue="calm", expectedDuration="2h")
        await w.until(lambda: len(w.running()) == 3)
        gang(w, "urgent", 3, queue="calm", priorityClassName="high", expectedDuration="1h")
        status = lambda: w.client.get(GROUPS, "default", "urgent").get("status", {})  # noqa: E731
        await w.until(lambda: status().get("estimatedStartTime"))
        before = status()["estimatedStartTime"]
        for wrong in (wrong_s, 0.0, wrong_s):
            machine.wrong_s = wrong
            await true.sleep(30)
            gang(w, f"small-{wrong:g}-{true.monotonic():g}", 1, gpus=1, expectedDuration="30m")
            await true.sleep(30)
        assert evicted(w) == []
        assert len(w.running("long")) == 1
        assert len(w.running("safe")) == 2
        assert status()["estimatedStartTime"] == before
        assert w.bound("urgent") == []
        await comes_to_rest(w)
        w.clock = true

    play(scenario)


ABSURD = {
    "expectedDuration": ["1e9h", "-5m", "999999999999h", "banana", ""],
    "minRuntime": ["999999999h", "-1s"],
    "scheduleTimeout": ["0s", "999999h"],
    "minMember": [0, -1, 10_001, 2**40],
    "minResources": [{GPU: "-1"}, {GPU: "9999999999999999999"}, {"memory": "banana"}],
    "priorityClassName": ["nobody", "x" * 300],
    "topology": [{"required": "nowhere"}, {"preferred": "rack", "maxWait": "-1s"}],
    "minTaskMember": [{"worker": 99}, {"": 1}],
}


def test_absurd_pod_groups(play):
    """The API refuses them, or the gang runs, or says why not; all others go on."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        taken = []
        for field, values in ABSURD.items():
            for number, value in enumerate(values):
                name = f"{field.lower()}-{number}"
                why = refused(lambda: gang(w, name, 1, gpus=0, **{field: value}))  # noqa: B023
                assert not why or field in why, value
                if not why:
                    taken.append(name)
        gang(w, "good", 1)
        await w.until(lambda: len(w.running("good")) == 1)
        await w.until(lambda: all(w.condition(name).get("message") for name in taken))
        waits = {name: w.condition(name) for name in taken if not w.bound(name)}
        assert all(each["status"] == "False" and each["reason"] for each in waits.values())
        assert waits["minresources-1"]["reason"] == "InvalidSpec"
        assert "is more than any machine has" in waits["minresources-1"]["message"]
        assert "levels are: rack, host" in waits["topology-0"]["message"]
        await comes_to_rest(w)
        whole = {"spec": {"minResources": {GPU: "1"}}}
        w.client.patch(GROUPS, "default", "minresources-1", whole)
        await w.until(lambda: w.condition("minresources-1")["status"] == "True")

    play(scenario)


def test_absurd_queues(play):
    """The API refuses them, or they are told, or they are only large; all others go on."""
    absurd = [
        {"weight": -1}, {"weight": 2**31}, {"weight": 2**53}, {"priority": 2**62},
        {"deserved": {GPU: "9999999999999999999999"}}, {"deserved": {GPU: "-3"}},
        {"deserved": {GPU: "0.5"}}, {"capability": {"memory": "1e400"}},
        {"capability": {GPU: "0"}}, {"minRuntime": "9999999999h"}, {"maxRuntime": "-1s"},
        {"maxRuntime": "0s"}, {"maxWait": "0s"}, {"parent": "root"}, {"parent": ""},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
        {"nodePools": [{"name": "p", "nodeSelector": {}}, {"name": "p", "nodeSelector": {}}]},
    ]  # fmt: skip

    async def scenario(w):
        await w.start(nodes=4)
        w.daemon()
        taken = []
        for number, spec in enumerate(absurd):
            why = refused(lambda: queue(w, f"odd-{number}", **spec))  # noqa: B023
            assert not why or next(iter(spec)) in why, spec
            if not why:
                taken.append(f"odd-{number}")
        gang(w, "good", 1)
        for name in taken:
            gang(w, f"in-{name}", 1, queue=name, gpus=1)
        await w.until(lambda: len(w.running("good")) == 1)
        told = lambda name: w.client.get(QUEUES, None, name).get("status", {}).get("conditions")  # noqa: E731
        await w.until(lambda: all(told(name) for name in taken))
        assert told("odd-3")[0]["reason"] == "InvalidSpec"
        assert "spec.priority: Expected int <= 2147483647" in told("odd-3")[0]["message"]
        await w.until(lambda: all(w.condition(f"in-{name}").get("message") for name in taken))
        for name in taken:
            if not w.bound(f"in-{name}"):
                assert w.condition(f"in-{name}")["reason"], name
        await comes_to_rest(w)

    play(scenario)


def test_a_budget_with_an_empty_selector_guards_everyone(play):
    """Nobody of the namespace is evicted while it allows none; without it room is made."""

    async def scenario(w):
        await w.start(nodes=1)
        priority(w, "high", 1000)
        w.daemon()
        make(
            w, BUDGETS, "PodDisruptionBudget", "policy/v1", "all",
            spec={"selector": {}, "maxUnavailable": 0},
        )  # fmt: skip
        gang(w, "low", 1)
        await w.until(lambda: len(w.running("low")) == 1)
        gang(w, "urgent", 1, priorityClassName="high")
        await w.until(lambda: w.condition("urgent").get("reason") == "InsufficientResources")
        await comes_to_rest(w)
        assert evicted(w) == []
        w.client.delete(BUDGETS, "default", "all")
        await w.until(lambda: len(w.running("urgent")) == 1)

    play(scenario)


def test_a_priority_class_is_deleted_while_it_is_used(play):
    """What runs goes on; who waits has the priority of its pods; nobody is evicted for it."""

    async def scenario(w):
        await w.start(nodes=1)
        priority(w, "high", 1000)
        w.daemon()
        gang(w, "urgent", 1, priorityClassName="high")
        await w.until(lambda: len(w.running("urgent")) == 1)
        w.client.delete(CLASSES, None, "high")
        gang(w, "other", 1)
        gang(w, "again", 1, priorityClassName="high")
        await w.until(lambda: w.condition("again").get("status") == "False")
        await comes_to_rest(w)
        assert len(w.running("urgent")) == 1
        assert evicted(w) == []
        priority(w, "high", 1000)
        await comes_to_rest(w)
        w.client.delete("jobs.batch", "default", "urgent", propagation="Background")
        await w.until(lambda: len(w.running("again")) == 1)
        assert w.bound("other") == []

    play(scenario)


@pytest.mark.parametrize("late_s", [0.0, 0.3, 1.5, 4.0])
@pytest.mark.parametrize("spec", [{"minMember": 2}, {"queue": "team"}, {"minMember": 1}])
def test_a_pod_group_changes_while_room_is_made_for_it(play, late_s, spec):
    """Whatever moment it is, victims do not leave again and again, and all comes to rest."""

    async def scenario(w):
        await w.start(nodes=2)
        priority(w, "high", 1000)
        queue(w, "team")
        w.daemon()
        slow = {"gpusched.io/stop-after": "3s", "gpusched.io/run-for": "10h"}
        for name in ("low-0", "low-1"):
            w.group(name, minMember=1)
            w.pod(name, labels={"gpusched.io/pod-group": name}, annotations=slow)
        await w.until(lambda: len(w.running()) == 2)
        gang(w, "urgent", 1, priorityClassName="high")
        await w.clock.sleep(late_s)
        why = refused(lambda: w.client.patch(GROUPS, "default", "urgent", {"spec": spec}))
        assert not why or "queue" in why
        w.job("more", 1, group="urgent")
        await comes_to_rest(w)
        assert len(w.running("urgent")) == spec.get("minMember", 1)
        assert len(evicted(w)) <= 2

    play(scenario)
