"""Whoever waits is told why: each pending pod of ours has a reason, an event, and a story."""

from __future__ import annotations

import contextlib
import os

import pytest

from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.io.client.api_client import ApiClient
from tests.behaviour.fuzz.foreign_kinds import SCHEMAS, install
from tests.behaviour.fuzz.malformed_objects import MalformedObjects
from tests.daemon.sentences.explained import ANY_GANG, OF_API
from tests.populations import examples, one_of

GROUPS = "podgroups.scheduling.gpusched.io"
FIRST = int(os.environ.get("GPUSCHED_ODD_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("GPUSCHED_ODD_SEEDS", "6")))
"""More by hand: GPUSCHED_ODD_SEEDS=500 pytest -k odd_object."""


def waiting(w):
    """Pods of ours that a scheduler should have something to say about."""
    return [
        pod
        for pod in w.client.list("pods")
        if pod["spec"].get("schedulerName") == "gpusched"
        and not pod["spec"].get("nodeName")
        and not pod["spec"].get("schedulingGates")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase", "Pending") == "Pending"
    ]


def told(pod):
    """Reason and sentence of the pod's own condition."""
    for each in pod["status"].get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return each.get("reason") or "", each.get("message") or ""
    return "", ""


def silent(w):
    """Pods that wait and are not told why, with what their author wrote."""
    return [
        (pod["metadata"]["name"], pod["metadata"].get("labels"), pod["metadata"].get("annotations"))
        for pod in waiting(w)
        if not all(told(pod))
    ]


def without_event(w):
    """Pods that wait and about which no event was told, on themselves or on what they belong to."""
    events = w.client.list("events")
    about = {each["involvedObject"].get("uid") for each in events}
    by_note = {each.get("message") for each in events}
    return [
        pod["metadata"]["name"]
        for pod in waiting(w)
        if pod["metadata"]["uid"] not in about and told(pod)[1] not in by_note
    ]


async def unexplained(w):
    """Pods of which ``gpusched explain`` does not say what their condition says."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    found = []
    try:
        for pod in waiting(w):
            name = pod["metadata"]["name"]
            evidence = await gather_objects(
                api, namespace="default", name=name, kinds=ANY_GANG, source=OF_API
            )
            assert evidence is not None, name
            text = explanation_text.render_explanation(explanation.explain_gang(evidence))
            said = " ".join(told(pod)[1].split())
            # Of the PodGroup that is explained the sentence is told without its name.
            said = said.removeprefix(f"PodGroup default/{evidence.name} cannot be used: ")
            if said not in " ".join(text.split()):
                found.append((name, said, text))
    finally:
        await api.close()
    return found


def unanswered(w):
    """PodGroups that say nothing although their author waits for a word."""
    found = []
    for group in w.groups():
        conditions = group.get("status", {})
        conditions = conditions.get("conditions") if isinstance(conditions, dict) else None
        said = [
            each
            for each in conditions or ()
            if isinstance(each, dict)
            and each.get("type") == "Scheduled"
            and each.get("reason")
            and each.get("message")
        ]
        if not said:
            found.append(group)
    return found


def unreported(w):
    """Objects that the daemon does not believe and of which no event tells their author."""
    cache = w.daemons[0].app.cache
    shelves = (cache.groups, cache.queues, cache.jobs, cache.topologies)
    rejected = [each for shelf in shelves for each in shelf.rejected.values()]
    rejected += cache.rejected_nodes.values()
    rejected += [each for each in cache.charged.values() if each.scheduler == "gpusched"]
    about = {each["involvedObject"].get("uid") for each in w.client.list("events")}
    return [each.message for each in rejected if each.uid not in about]


def test_a_suspended_job_that_cannot_be_believed_is_told(play):
    """Given a suspended Job of ours with a number that is none, an event says which."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        job = w.job("odd", 1, queue="default", suspend=True)
        job["metadata"]["annotations"] = {"gpusched.io/min-member": "many"}
        w.client.update("jobs.batch", job)
        await w.clock.sleep(5)
        assert unreported(w) == []
        told = [e["message"] for e in w.client.list("events") if e["reason"] == "InvalidSpec"]
        assert len(told) == 1
        assert "gpusched.io/min-member" in told[0]

    play(scenario)


@pytest.mark.parametrize(
    ("labels", "notes", "spec"),
    [
        ({"kueue.x-k8s.io/pod-group-name": "k"}, {"kueue.x-k8s.io/pod-group-total-count": "2"}, {}),
        ({}, {"pod-group-name": "g"}, {}),
        ({}, {}, {"schedulingGroup": {"podGroupName": "g"}}),
        ({}, {"gang.scheduling.koordinator.sh/name": "k"}, {}),
    ],
)
def test_pods_of_a_started_job_are_awaited_where_they_go(play, labels, notes, spec):
    """Given a suspended Job whose pods name a gang by another convention, no room is held twice."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.group("g", minMember=2)
        job = w.job("j", 2, queue="default", suspend=True)
        w.client.delete("jobs.batch", "default", "j")
        await w.until(lambda: not w.client.list("jobs.batch"))
        job["metadata"] = {key: job["metadata"][key] for key in ("name", "namespace", "labels")}
        job["spec"].pop("selector")
        template = job["spec"]["template"]
        template["metadata"] = {"labels": labels, "annotations": notes}
        template["spec"].update(spec)
        w.client.create("jobs.batch", job)
        await w.until(lambda: len(w.pods()) == 2)
        await w.until(lambda: len(w.bound()) == 2, within=5)

    play(scenario)


@pytest.mark.parametrize("kind", ["JobSet", "LeaderWorkerSet", "RayCluster", "Pod", "PodGroup"])
def test_who_says_its_controller_by_reference_alone_is_scheduled(play, kind):
    """Given pods with an owner of any kind, none of its labels and a minimum, nothing breaks."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        owner = {
            "apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "u", "controller": True,
        }  # fmt: skip
        for number in range(2):
            w.pod(
                f"p-{number}",
                gpus=4,
                ownerReferences=[owner],
                annotations={"gpusched.io/min-member": "2"},
            )
        await w.until(lambda: len(w.bound()) == 2, within=10)

    play(scenario)


@pytest.mark.parametrize(
    "notes",
    [
        {"scheduling.k8s.io/group-name": "team-a/va"},
        {"scheduling.volcano.sh/group-name": "team-a/va"},
        {"pod-group-name": "/"},
        {"scheduling.k8s.io/group-name": "x" * 300},
        {"scheduling.k8s.io/group-name": "a\nb"},
        {"gang.scheduling.koordinator.sh/name": "team-a/va"},
        {"gang.scheduling.koordinator.sh/name": "a/b",
         "gang.scheduling.koordinator.sh/min-available": "2"},
        {"yunikorn.apache.org/task-group-name": "t", "yunikorn.apache.org/app-id": "a/b",
         "yunikorn.apache.org/task-groups": '[{"name": "t", "minMember": 2}]'},
        {"gpusched.io/min-member": "many"},
        {"gpusched.io/topology-required": "no\nlevel"},
        {"leaderworkerset.sigs.k8s.io/size": "1e9"},
    ],
)  # fmt: skip
def test_a_group_that_no_object_can_be_is_told_of(play, notes):
    """Given a pod whose annotations no gang can come of, it says why within two sessions."""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon()
        await w.until(lambda: w.daemons[0].leading)
        labels = {}
        if any(key.startswith("leaderworkerset") for key in notes):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": "l",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
            }
        w.pod("odd", gpus=1, annotations=notes, labels=labels)
        await w.clock.sleep(5)
        if waiting(w):
            assert silent(w) == []
            assert without_event(w) == []
            assert await unexplained(w) == []
            assert "\n" not in w.told("odd")["message"]
        else:
            assert "koordinator" in str(notes), w.bound()
            assert "min-available" not in str(notes)

    play(scenario)


@pytest.mark.parametrize("late_s", [0.1, 0.5, 0.9])
def test_a_group_that_cannot_be_believed_any_more_is_told(play, late_s):
    """Given a group that was told something just now, when its status is spoilt, it is mended."""

    async def scenario(w):
        await w.start(nodes=1)
        MalformedObjects(w, 0).loosen()
        w.daemon()
        w.group("g", minMember=3)
        await w.until(lambda: w.condition("g").get("message"))
        await w.clock.sleep(5)
        w.client.patch(GROUPS, "default", "g", {"spec": {"minMember": 4}})
        await w.until(lambda: "4" in w.condition("g").get("message", ""))
        await w.clock.sleep(late_s)
        w.client.patch(GROUPS, "default", "g", {"spec": {"minMember": 5}})
        await w.clock.sleep(0.05)
        junk = {"status": {"conditions": True}}
        w.client.patch(GROUPS, "default", "g", junk, subresource="status")
        await w.clock.sleep(10)
        assert unanswered(w) == []  # its status was written anew, and it is believed again
        w.client.patch(GROUPS, "default", "g", {"spec": {"minMember": 6}})
        await w.until(lambda: "6" in w.condition("g").get("message", ""))

    play(scenario)


@pytest.mark.parametrize("seed", one_of(3, SEEDS))
def test_no_odd_object_waits_in_silence(play, seed):
    """Given objects with odd names and values, each pending pod of ours has a reason or a node."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, *SCHEMAS)
        w.daemon()
        odd = MalformedObjects(w, seed)
        if seed % 2:
            odd.loosen()
        w.group("g", minMember=2)
        w.group("rejected", minResources={"nvidia.com/gpu": "9999999999999999999"})
        w.group("deleting", minMember=2)
        w.client.patch(GROUPS, "default", "deleting", {"metadata": {"finalizers": ["a/b"]}})
        w.client.delete(GROUPS, "default", "deleting")
        for number in range(examples(32, whole=60)):
            odd.pod(f"odd-{number}")
        for number in range(12):
            odd.group(f"odd-group-{number}")
            odd.job(f"odd-job-{number}")
        for name in ("g", "hidden", "va", "a", "0", "x"):
            odd.foreign(name)
        assert odd.made > 40
        for turn in range(3):
            if turn:
                odd.change()
            await w.clock.sleep(60)
            assert silent(w) == []
            assert without_event(w) == []
            assert await unexplained(w) == []
            assert unanswered(w) == []
            assert unreported(w) == []
        w.check_journal = False
        # What others wrote into the statuses of groups is no witness of ours.
        for name in [each["metadata"]["name"] for each in w.groups()]:
            w.client.delete(GROUPS, "default", name)
            with contextlib.suppress(StatusError):
                w.client.patch(GROUPS, "default", name, {"metadata": {"finalizers": None}})

    play(scenario)
