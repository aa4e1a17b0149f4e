"""The audit of a live cluster: clean ones hold, and each planted violation is found and named."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import yaml

from gpusched.api.meta.identity import format_time
from gpusched.base.errors import Denied
from gpusched.cli.lab.audit.checks import POLICIES, AuditedCluster, advice, find_violations, notes
from gpusched.cli.lab.audit.command import PATHS, audit_twice, read_cluster
from gpusched.devcluster.cluster import DevCluster
from gpusched.io.client.api_client import ApiClient
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.play.on_embedded import play_embedded

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
LIBRARY = Path(__file__).resolve().parents[3] / "kwok-scenarios" / "library"
PLAYED = {
    "leader-killed-in-mid-commit": set(),
    "mig-and-shares": set(),
    "sub-groups": set(),
    "bad-objects-among-good": {
        ("I5", "Queue", "egg"), ("I5", "Queue", "hen"), ("I5", "Queue", "orphan"),
    },
}  # fmt: skip
"""Scenarios, and what is wrong in the end because they are about it."""
GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"
RESERVATIONS = "reservations.scheduling.gpusched.io"
TOPOLOGIES = "topologies.scheduling.gpusched.io"
LEASE = ("gpusched-system", "gpusched")
SERVED = {
    "podgroups": GROUPS, "queues": QUEUES, "topologies": TOPOLOGIES, "jobs": "jobs.batch",
    "pods": "pods", "nodes": "nodes", "namespaces": "namespaces",
    "reservations": RESERVATIONS,
}  # fmt: skip


async def look(w, settle_s=0.0):
    """What an audit of the world's cluster sees and finds."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        return await audit_twice(
            lambda: read_cluster(api, ("gpusched",), lease=LEASE),
            settle_s=settle_s,
            sleep=w.clock.sleep,
        )
    finally:
        await api.close()


def named(found):
    """Invariant, kind and name of each finding."""
    return {(each.invariant, each.kind, each.name) for each in found}


def queue(w, name, **spec):
    """Make a queue."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def note(w, pod, **annotations):
    """Write annotations of ours on a pod, as a tenant could."""
    body = {f"gpusched.io/{key}": text for key, text in annotations.items()}
    w.client.patch("pods", "default", pod["metadata"]["name"], {"metadata": {"annotations": body}})


async def running(w):
    """Two gangs of two on four nodes of two racks, the second required in one rack; no daemon."""
    await w.start(nodes=0)
    for number in range(4):
        w.node(f"node-{number}", **{"gpusched.io/rack": f"r{number // 2}"})
    queue(w, "team")
    daemon = w.daemon()
    w.gang("a", 2)
    await w.until(lambda: len(w.running("a")) == 2)
    w.group("b", queue="team", minMember=2, topology={"required": "rack"})
    w.job("b", 2, group="b")
    await w.until(lambda: len(w.running("b")) == 2)
    w.gang("waits", 3)
    await w.until(lambda: w.condition("waits").get("status") == "False")
    await w.clock.sleep(90)
    return daemon


def over_the_node(w):
    """A pod that nobody scheduled sits on a full node."""
    w.pod("past-us", gpus=8, spec={"nodeName": "node-0", "schedulerName": "other"})
    return {("I1", "Node", "node-0")}


def a_slot_twice(w):
    """Two pods on one node say that they have the same slots."""
    node = w.bound("a")[0]["spec"]["nodeName"]
    w.pod("twin", gpus=0, spec={"nodeName": node})
    twin = w.client.get("pods", "default", "twin")
    note(w, twin, slots="0,1", plan="p", fence="d/1")
    return {("I2", "Node", node), ("I2", "Pod", "default/twin")}


def a_claim_of_slots(w):
    """A pod with a node of its own choice says that it has slots of it."""
    w.pod("liar", gpus=0, spec={"nodeName": "node-3"}, annotations={"gpusched.io/slots": "0-7"})
    return {("I2", "Pod", "default/liar")}


def changed_slots(w):
    """Somebody changes the slots of a pod that we bound: its seal does not fit any more."""
    pod = w.bound("a")[0]
    note(w, pod, slots="0,1,2,3,4,5,6,9")
    return {("I2", "Pod", f"default/{pod['metadata']['name']}")}


def a_gang_in_part(w):
    """A member of a gang is bound, and the other waits."""
    w.group("half", minMember=2)
    for number in range(2):
        w.pod(f"half-{number}", gpus=0, labels={"gpusched.io/pod-group": "half"})
    w.client.bind("default", "half-0", "node-0")
    return {
        ("I3", "PodGroup", "default/half"),
        ("I15", "PodGroup", "default/half"),
        ("I15", "Pod", "default/half-1"),
    }


def another_rack(w):
    """The label of a node changes under a gang that needs one rack."""
    node = w.bound("b")[0]["spec"]["nodeName"]
    w.client.patch("nodes", None, node, {"metadata": {"labels": {"gpusched.io/rack": "r9"}}})
    return {("I4", "PodGroup", "default/b")}


def a_queue_over_its_limit(w):
    """A capability is cut below what is held."""
    w.client.patch(QUEUES, None, "team", {"spec": {"capability": {"nvidia.com/gpu": "8"}}})
    return {("I5", "Queue", "team")}


def queues_in_a_ring(w):
    """Two queues are each other's parent."""
    queue(w, "x", parent="y")
    queue(w, "y", parent="x")
    return {("I5", "Queue", "x"), ("I5", "Queue", "y")}


def an_orphan_queue(w):
    """A queue without its parent."""
    queue(w, "lost", parent="nowhere")
    return {("I5", "Queue", "lost")}


def too_much_promised(w):
    """Children are guaranteed more than their parent deserves."""
    queue(w, "top", deserved={"nvidia.com/gpu": "8"})
    for name in ("l", "r"):
        queue(w, name, parent="top", guarantee={"resource": {"nvidia.com/gpu": "8"}})
    return {("I5", "Queue", "top")}


def an_old_fence(w):
    """What was bound last carries an older fence than what was bound first."""
    first, last = w.bound("a")[0], w.bound("b")[0]
    note(w, first, fence="d/0")
    note(w, last, fence="d/-1")
    w.client.patch(
        "leases.coordination.k8s.io", *LEASE, {"spec": {"leaseTransitions": 5}},
    )  # fmt: skip
    note(w, first, fence="d/5")
    note(w, last, fence="d/1")
    return {("I8", "Pod", f"default/{last['metadata']['name']}")}


def a_term_to_come(w):
    """A pod carries a fence of a term that the Lease has not reached."""
    pod = w.bound("b")[0]
    note(w, pod, fence="d/99")
    return {("I8", "Pod", f"default/{pod['metadata']['name']}")}


def a_stranger_with_our_plan(w):
    """A pod of another scheduler says that we bound it."""
    w.pod("other", gpus=0, spec={"schedulerName": "other", "nodeName": "node-0"})
    note(w, w.client.get("pods", "default", "other"), plan="p", fence="d/0")
    return {("I11", "Pod", "default/other")}


def records_before_the_binding(w):
    """A pod that waits carries what only our binding writes."""
    w.pod("early", gpus=8, annotations={"gpusched.io/rank": "3"})
    return {("I11", "Pod", "default/early"), ("I15", "Pod", "default/early")}


def nobody_says_why(w):
    """Pods and groups that nobody has looked at."""
    w.group("silent", minMember=1)
    w.pod("silent", labels={"gpusched.io/pod-group": "silent"})
    return {("I15", "Pod", "default/silent"), ("I15", "PodGroup", "default/silent")}


def an_old_reason(w):
    """The spec of a gang that waits has changed since it was told why."""
    w.client.patch(GROUPS, "default", "waits", {"spec": {"minMember": 2}})
    return {("I15", "PodGroup", "default/waits")}


PLANTED = [
    over_the_node, a_slot_twice, a_claim_of_slots, changed_slots, a_gang_in_part, another_rack,
    a_queue_over_its_limit, queues_in_a_ring, an_orphan_queue, too_much_promised, an_old_fence,
    a_term_to_come, a_stranger_with_our_plan, records_before_the_binding, nobody_says_why,
    an_old_reason,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__)
def test_a_planted_violation_is_found_and_named(play, plant):
    """Given a sound cluster whose daemon stands still, when one thing is made wrong, it is named."""

    async def scenario(w):
        daemon = await running(w)
        seen, found = await look(w)
        assert found == []
        daemon.kill()
        wanted = plant(w)
        await w.clock.sleep(180)
        seen, found = await look(w, settle_s=5.0)
        assert wanted <= named(found)
        beside = named(found) - wanted
        # Who sits past its capability or its slots may break a second thing, and no third one.
        assert {each[0] for each in beside} <= {each[0] for each in wanted} | {"I2"}, beside
        assert all(advice(each) != "see docs/audit.md" for each in found)
        assert any("nobody has renewed the Lease" in each for each in notes(seen))
        w.check_journal = False
        w.objects = dict

    play(scenario)


def test_a_sound_cluster_holds_and_is_told_what_is_not_protected(play):
    """Given gangs that run and wait under a daemon, nothing is found; missing policies are noted."""

    async def scenario(w):
        await running(w)
        seen, found = await look(w, settle_s=5.0)
        assert found == []
        told = notes(seen)
        assert len(told) == len(POLICIES)
        assert all("is not in force" in each for each in told)

        # and where shards have the fence of manifests/shards, that one is not missed
        fenced = notes(attrs.evolve(seen, policies=frozenset({"gpusched-fence-shards"})))
        assert {*told} - {*fenced} == {each for each in told if "policy gpusched-fence " in each}

    play(scenario)


@pytest.mark.parametrize(
    "nodes", [{"nodeNames": ["node-0"]}, {"nodes": 1, "nodeSelector": {"gpusched.io/rack": "r0"}}]
)
def test_what_was_bound_into_an_open_window_of_others_is_named(play, nodes):
    """Given a window, who came when it was open is told, and not its owners nor who was there before."""

    async def scenario(w):
        daemon = await running(w)
        queue(w, "course")
        queue(w, "seminar", parent="course")
        w.client.create(
            RESERVATIONS,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "lecture"},
                "spec": {
                    "from": format_time(int(w.clock.now())),
                    "duration": "1h",
                    "queues": ["course"],
                    "namespaces": ["lab"],
                    "atStart": "Leave",
                    **nodes,
                },
            },
        )
        await w.until(lambda: w.client.get(RESERVATIONS, None, "lecture").get("status"))
        chosen = w.client.get(RESERVATIONS, None, "lecture")["status"]["nodes"][0]
        daemon.kill()
        await w.clock.sleep(90)
        w.group("guest", minMember=1)
        w.group("owner", minMember=1, queue="seminar")
        for name, node in (("guest", chosen), ("owner", chosen), ("beside", "node-3")):
            w.pod(name, gpus=0, labels={"gpusched.io/pod-group": name} if name != "beside" else {})
            w.client.bind("default", name, node)
            note(w, w.client.get("pods", "default", name), plan="p", fence="d/1")
        found = [each for each in (await look(w))[1] if each.invariant == "I19"]
        assert named(found) == {("I19", "PodGroup", "default/guest")}
        assert f"pod default/guest was bound to node {chosen} at " in found[0].sentence
        assert "which Reservation lecture keeps for others from " in found[0].sentence
        assert advice(found[0]) != "see docs/audit.md"
        await w.clock.sleep(3600)
        assert not [each for each in (await look(w))[1] if each.invariant == "I19"]
        w.check_journal = False
        w.objects = dict

    play(scenario, limit_s=6000.0)


def test_what_mends_itself_is_no_violation(play):
    """Given a pod that just waits to be told, a second look finds it told."""

    async def scenario(w):
        daemon = await running(w)
        daemon.kill()
        w.client.patch(GROUPS, "default", "waits", {"spec": {"minMember": 4}})
        await w.clock.sleep(30)
        assert named((await look(w))[1]) == {("I15", "PodGroup", "default/waits")}
        w.daemon()
        assert (await look(w, settle_s=60.0))[1] == []

    play(scenario)


def test_what_may_not_be_read_is_said(play, monkeypatch):
    """Given an account that reads pods alone, the audit looks at these and says what it left out."""
    original = ApiClient.request

    async def request(self, method, path, **how):
        if method == "GET" and path not in ("/version", "/api/v1/pods") and denied:
            raise Denied(f"you may not read {path}", status=403)
        return await original(self, method, path, **how)

    denied: list[bool] = []

    async def scenario(w):
        await running(w)
        monkeypatch.setattr(ApiClient, "request", request)
        denied.append(True)
        seen, found = await look(w)
        denied.clear()
        assert found == []
        assert set(seen.objects) == {"pods"}
        assert len(seen.unread) == len(PATHS) - 1 + 3  # and devices, seals, policies

    play(scenario)


@pytest.mark.parametrize("name", PLAYED)
def test_scenarios_of_the_library_end_soundly(name, monkeypatch):
    """Given a scenario of the library, an audit of its cluster at its end finds what it is about."""
    (scenario,) = read_path(LIBRARY / f"{name}.yaml")
    ends = []
    original = DevCluster.close

    async def close(self):
        objects = {kind: self.client.list(served) for kind, served in SERVED.items()}
        ends.append(AuditedCluster(objects=objects, now=self.core.clock.now()))
        await original(self)

    monkeypatch.setattr(DevCluster, "close", close)
    play_embedded(scenario)
    assert len(ends) == 1
    assert named(find_violations(ends[0])) == PLAYED[name]


def test_every_policy_that_is_shipped_is_asked_for():
    """The policies that notes tell of are those of manifests/policies."""
    shipped = {
        each["metadata"]["name"]
        for file in sorted((MANIFESTS / "policies").glob("*.yaml"))
        for each in yaml.safe_load_all(file.read_text())
        if each and each.get("kind") == "ValidatingAdmissionPolicy"
    }
    assert shipped == set(POLICIES)


@pytest.mark.parametrize("junk", [None, 0, "x", [], {}, [None], {"a": 1}, [{"name": 1}]])
def test_objects_of_no_shape_are_passed_over(junk):
    """Given objects that a laxer CRD or an edited file may hold, the audit ends, and finds others."""
    odd = [
        {"metadata": {"name": "x", "namespace": "d", place: junk}, "spec": junk, "status": junk}
        for place in ("labels", "annotations", "other")
    ]
    for field in ("containers", "minMember", "subGroups", "topology", "capability", "levels"):
        odd.append({"metadata": {"name": "x", "namespace": "d"}, "spec": {field: junk}})
        odd.append({"metadata": {"name": "x"}, "spec": {}, "status": {"conditions": junk}})
    lost = {"metadata": {"name": "lost"}, "spec": {"parent": "nowhere"}}
    kinds = ("pods", "nodes", "podgroups", "topologies", "jobs", "namespaces")
    seen = AuditedCluster(objects={**dict.fromkeys(kinds, odd), "queues": [*odd, lost]}, now=1e9)
    assert ("I5", "Queue", "lost") in named(find_violations(seen))
    assert isinstance(notes(seen), list)
