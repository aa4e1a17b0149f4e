"""What PodGroups of Kubernetes itself are told: its own conditions, and ours beside them."""

from __future__ import annotations

import msgspec
import pytest

from gpusched.api.foreign.native_wire import NativeAnnotations
from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install

GROUPS = "podgroups.scheduling.k8s.io"
CLASSES = "priorityclasses.scheduling.k8s.io"
DIALECTS = [("v1alpha2", "PodGroupScheduled"), ("v1beta1", "PodGroupInitiallyScheduled")]


@pytest.fixture(params=DIALECTS, ids=lambda each: each[0])
def dialect(request, monkeypatch):
    """The version that the cluster serves, and how its condition is called."""
    monkeypatch.setitem(SCHEMAS, GROUPS, (request.param[0], "PodGroup", True, ANY, ANY))
    return request.param


def group(w, dialect, name, spec, **metadata):
    """A native group in the namespace default."""
    return w.client.create(
        GROUPS,
        {
            "apiVersion": f"scheduling.k8s.io/{dialect[0]}",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": spec,
        },
    )


def gang(count, **more):
    """A spec with the gang policy."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **more}


def member(w, group_name, number, *, gpus=8, spec=None, **metadata):
    """A pod that names the group."""
    w.pod(
        f"{group_name}-{number}", gpus=gpus, spec=spec,
        labels={"gpusched.io/pod-group": group_name}, **metadata,
    )  # fmt: skip


def conditions(w, name):
    """Status, reason and message of each condition of a group by type."""
    status = w.client.get(GROUPS, "default", name).get("status") or {}
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in status.get("conditions", ())
    }


def running(w, prefix):
    """Names of pods of a group with a node."""
    names = [pod["metadata"]["name"] for pod in w.bound()]
    return sorted(name for name in names if name.startswith(prefix))


def priority_class(w, name, value, **more):
    """A priority class."""
    w.client.create(
        CLASSES,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            **more,
        },
    )


def test_a_group_with_too_few_pods_says_so_in_our_condition_alone(play, dialect):
    """Given two of three pods, kube-scheduler's condition is absent and ours has the numbers."""

    async def scenario(w):
        await w.start(nodes=3)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", gang(3))
        for number in range(2):
            member(w, "a", number)
        await w.until(lambda: "gpusched.io/Scheduled" in conditions(w, "a"))
        told = conditions(w, "a")
        assert dialect[1] not in told
        assert told["gpusched.io/Scheduled"][:2] == ("False", "NotEnoughMembers")
        assert "needs 3 pods together; 2 pods can run" in told["gpusched.io/Scheduled"][2]
        member(w, "a", 2)
        await w.until(lambda: conditions(w, "a").get(dialect[1], ("",))[0] == "True")
        told = conditions(w, "a")
        assert told[dialect[1]][1] == "Scheduled"
        assert told["gpusched.io/Scheduled"][:2] == ("True", "Scheduled")

    play(scenario)


def test_a_started_group_below_its_minimum_says_so_and_stays_scheduled(play, dialect):
    """Given a lost member, Kubernetes' condition stays True and ours tells the shortage."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", gang(2))
        for number in range(2):
            member(w, "a", number, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: conditions(w, "a").get(dialect[1], ("",))[0] == "True")
        w.client.delete("pods", "default", "a-0", grace_s=0)
        await w.until(lambda: conditions(w, "a")["gpusched.io/Scheduled"][0] == "False")
        told = conditions(w, "a")
        assert told[dialect[1]][0] == "True"
        assert "needs 2 pods together; 1 pod can run" in told["gpusched.io/Scheduled"][2]

    play(scenario)


def test_a_group_without_room_says_its_numbers(play, dialect):
    """Given three pods for two nodes, both conditions have the shortage."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", gang(3))
        for number in range(3):
            member(w, "a", number)
        await w.until(lambda: dialect[1] in conditions(w, "a"))
        told = conditions(w, "a")
        assert told[dialect[1]][:2] == ("False", "Unschedulable")
        assert told["gpusched.io/Scheduled"][:2] == ("False", "InsufficientResources")
        for kind in (dialect[1], "gpusched.io/Scheduled"):
            assert "needs 3 pods with 8 nvidia.com/gpu" in told[kind][2]
            assert "2 fit now" in told[kind][2]

    play(scenario)


AS_ONE = {"v1alpha2": "PodGroup", "v1beta1": {"all": {}}}


def test_a_group_that_goes_as_one_is_one_victim(play, dialect):
    """Given four running members, two needed, and a claimant for one GPU, all four leave."""

    async def scenario(w):
        await w.start(nodes=4)
        await install(w, GROUPS)
        priority_class(w, "low", 10)
        priority_class(w, "high", 100)
        w.daemon()
        mode = AS_ONE[dialect[0]]
        group(w, dialect, "low", gang(2, disruptionMode=mode, priorityClassName="low", priority=10))
        for number in range(4):
            member(w, "low", number, spec={"priorityClassName": "low"},
                   annotations={"gpusched.io/run-for": "10h"})  # fmt: skip
        await w.until(lambda: len(running(w, "low")) == 4)
        w.pod("high", spec={"priorityClassName": "high"})
        await w.until(lambda: running(w, "high") == ["high"])
        assert running(w, "low") == []
        await w.until(lambda: "DisruptionTarget" in conditions(w, "low"))
        told = conditions(w, "low")["DisruptionTarget"]
        assert told[:2] == ("True", "PreemptionByScheduler")

    play(scenario)


def test_the_number_of_the_group_counts_before_its_pods(play, dialect):
    """Given a group of a high number with pods of none, it makes room for itself."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        priority_class(w, "high", 100)
        w.daemon()
        w.pod("low", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: running(w, "low") == ["low"])
        group(w, dialect, "high", gang(1, priority=100))
        member(w, "high", 0)
        await w.until(lambda: running(w, "high") == ["high-0"])

    play(scenario)


@pytest.mark.parametrize("how", ["group", "member"])
def test_never_forbids_preemption_for_the_whole_group(play, dialect, how):
    """Given Never on the group, or on one member where the group says nothing, nobody leaves."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS)
        priority_class(w, "high", 100)
        priority_class(w, "polite", 100, preemptionPolicy="Never")
        w.daemon()
        for number in range(2):
            w.pod(f"low-{number}", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: len(running(w, "low")) == 2)
        more = {"preemptionPolicy": "Never"} if how == "group" else {}
        group(w, dialect, "high", gang(1, priority=100, **more))
        member(w, "high", 0, spec={"priorityClassName": "high"})
        other = "polite" if how == "member" else "high"
        member(w, "high", 1, spec={"priorityClassName": other})
        await w.until(lambda: "gpusched.io/Scheduled" in conditions(w, "high"))
        await w.clock.sleep(60)
        assert running(w, "high") == []

    play(scenario)


def test_claims_that_no_member_uses_hold_nothing(play, dialect):
    """Given a group with resourceClaims that no pod names, it starts; an unknown mode of another is told."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS)
        w.daemon()
        claims = [{"name": "g", "resourceClaimName": "c"}]
        group(w, dialect, "dra", gang(1, resourceClaims=claims))
        group(w, dialect, "b", gang(1, disruptionMode={"perRack": {}}))
        member(w, "dra", 0)
        member(w, "b", 0)
        await w.until(lambda: (running(w, "dra"), running(w, "b")) == (["dra-0"], ["b-0"]))
        await w.until(lambda: "gpusched.io/Admitted" in conditions(w, "b"))
        assert "spec.disruptionMode 'perRack'" in conditions(w, "b")["gpusched.io/Admitted"][2]

    play(scenario)


def test_a_minimum_that_is_lowered_starts_the_group(play, dialect):
    """Given a generation that does not change, the new minCount counts at once."""

    async def scenario(w):
        await w.start(nodes=3)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", gang(4))
        for number in range(4):
            member(w, "a", number)
        await w.until(lambda: "gpusched.io/Scheduled" in conditions(w, "a"))
        w.client.patch(GROUPS, "default", "a", {"spec": gang(3)})
        await w.until(lambda: len(running(w, "a")) == 3)
        await w.until(lambda: "1 more waits" in conditions(w, "a")["gpusched.io/Scheduled"][2])

    play(scenario)


VALUES = (
    "",
    "0",
    "-1",
    "9" * 30,
    "x" * 300,
    "{}",
    "[]",
    '{"a": 9}',
    '[{"name": "a"}]',
    "1h",
    "true",
    "\u00e4",
)


def test_any_annotation_of_a_native_group_leaves_others_alone(play, dialect):
    """Given every annotation with odd values, and a priority out of the air, others start."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS)
        daemon = w.daemon()
        keys = {each.encode_name for each in msgspec.structs.fields(NativeAnnotations)}
        number = 0
        for key in sorted(key for key in keys if key.startswith("gpusched.io/")):
            for value in VALUES:
                number += 1
                name = f"odd-{number}"
                group(w, dialect, name, gang(1, priority=2_000_000_000), annotations={key: value})
                member(w, name, 0, gpus=0)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=20)
        w.pod("later", gpus=0)
        await w.until(lambda: running(w, "later") == ["later"])
        assert daemon.app.readiness() == (True, "leader")

    play(scenario)


def test_a_number_that_no_class_gives_makes_no_room(play, dialect):
    """Given a priority that nothing checked, the group waits and says which counts."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        w.daemon()
        w.pod("low", annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: running(w, "low") == ["low"])
        group(w, dialect, "high", gang(1, priority=100))
        member(w, "high", 0)
        await w.until(lambda: "gpusched.io/Admitted" in conditions(w, "high"))
        await w.clock.sleep(30)
        assert running(w, "low") == ["low"]
        assert "priority 100 does not count" in conditions(w, "high")["gpusched.io/Admitted"][2]

    play(scenario)


def test_a_basic_group_starts_what_fits(play, dialect):
    """Given three pods of unlike sizes on one node, those that fit start and the rest says why."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", {"schedulingPolicy": {"basic": {}}})
        for number, gpus in enumerate((9, 4, 4)):
            member(w, "a", number, gpus=gpus)
        await w.until(lambda: running(w, "a") == ["a-1", "a-2"])
        await w.until(lambda: conditions(w, "a").get(dialect[1], ("",))[0] == "True")
        await w.until(lambda: "9 nvidia.com/gpu" in w.told("a-0").get("message", ""))

    play(scenario)


def test_a_replacement_starts_after_a_sibling_has_completed(play, dialect):
    """Given one member that succeeded and one that failed, the pod made anew is placed."""

    async def scenario(w):
        await w.start(nodes=3)
        await install(w, GROUPS)
        w.daemon()
        group(w, dialect, "a", gang(3))
        for number in range(3):
            member(w, "a", number, annotations={"gpusched.io/run-for": "10h"})
        await w.until(lambda: len(running(w, "a")) == 3)
        for number, phase in enumerate(("Succeeded", "Failed")):
            status = {"status": {"phase": phase}}
            w.client.patch("pods", "default", f"a-{number}", status, subresource="status")
        member(w, "a", "1b")
        await w.until(lambda: "a-1b" in running(w, "a"))

    play(scenario)


def test_an_annotation_that_cannot_be_read_is_told_on_the_group(play, dialect):
    """Given a duration that is none, the group says which annotation it is."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        w.daemon()
        notes = {"gpusched.io/schedule-timeout": "soon"}
        group(w, dialect, "a", gang(1), annotations=notes)
        member(w, "a", 0)
        await w.until(lambda: "gpusched.io/Scheduled" in conditions(w, "a"))
        told = conditions(w, "a")["gpusched.io/Scheduled"]
        assert told[:2] == ("False", "InvalidSpec")
        assert "gpusched.io/schedule-timeout" in told[2]
        assert running(w, "a") == []
        mended = {"metadata": {"annotations": {"gpusched.io/schedule-timeout": "1h"}}}
        w.client.patch(GROUPS, "default", "a", mended)
        await w.until(lambda: running(w, "a") == ["a-0"])
        await w.until(lambda: conditions(w, "a")["gpusched.io/Scheduled"][0] == "True")

    play(scenario)


def test_what_is_not_honoured_is_said_before_the_group_is_admitted(play, dialect):
    """Given an unknown field and a queue that does not exist, both are told."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS)
        w.daemon()
        labels = {"gpusched.io/queue": "nowhere"}
        group(w, dialect, "a", gang(1, surge={"max": 1}), labels=labels)
        member(w, "a", 0)
        await w.until(lambda: "gpusched.io/Admitted" in conditions(w, "a"))
        told = conditions(w, "a")["gpusched.io/Admitted"]
        assert told[:2] == ("False", "QueueNotFound")
        assert "spec.surge" in told[2]

    play(scenario)
