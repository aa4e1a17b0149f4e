"""A group that cannot be believed, with conditions that somebody else wrote: ours stands over them."""

from __future__ import annotations

import pytest

from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install
from tests.daemon.conftest import GROUPS as OURS

VERSIONS = {
    "podgroups.scheduling.k8s.io": ("scheduling.k8s.io/v1beta1", "PodGroup"),
    "compositepodgroups.scheduling.k8s.io": (
        "scheduling.k8s.io/v1alpha3", "CompositePodGroup",
    ),
    "podgroups.scheduling.volcano.sh": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "podgroups.scheduling.x-k8s.io": ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    OURS: ("scheduling.gpusched.io/v1alpha1", "PodGroup"),
}  # fmt: skip
KUBERNETES = (
    "PodGroupScheduled",
    "PodGroupInitiallyScheduled",
    "CompositePodGroupInitiallyScheduled",
)
OWN = ("gpusched.io/Scheduled", "gpusched.io/Admitted")
TYPES = (*KUBERNETES, *OWN, "Scheduled", "Admitted")
WRONG = {"minMember": -1, "schedulingPolicy": {"gang": {"minCount": -4}}}


def forge(w, kind, holds="True"):
    """Write what a group that runs would say into the status of the one that is refused."""
    told = {"status": holds, "reason": "Forged", "message": "it runs"}
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": each, **told, **at} for each in TYPES]
    status = {"phase": "Running", "running": 5, "conditions": conditions}
    sub = "" if "volcano" in kind else "status"
    w.client.patch(kind, "default", "liar", {"status": status}, subresource=sub)


def refuse(w, kind, spec=None):
    """A group that no daemon can use."""
    version, name = VERSIONS[kind]
    meta = {"name": "liar", "namespace": "default"}
    body = {"apiVersion": version, "kind": name, "metadata": meta, "spec": spec or WRONG}
    w.client.create(kind, body)


def conditions(w, kind):
    """Status, reason and message of each condition of the group."""
    status = w.client.get(kind, "default", "liar").get("status") or {}
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in status.get("conditions", ())
    }


@pytest.fixture
def kinds(monkeypatch):
    """Groups of Kubernetes as a schema that lets everything through, so that we refuse it."""
    for kind, (version, name) in VERSIONS.items():
        if kind.endswith("groups.scheduling.k8s.io"):
            served = (version.partition("/")[2], name, True, ANY, ANY)
            monkeypatch.setitem(SCHEMAS, kind, served)


@pytest.mark.parametrize("kind", [each for each in VERSIONS if each.endswith(".k8s.io")])
@pytest.mark.parametrize("holds", ["True", "False"])
def test_a_refused_group_of_kubernetes_is_not_shown_as_scheduled(play, kinds, kind, holds):
    """Kubernetes' own condition never goes back, but nobody of us wrote it: it is forged again."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, kind)
        w.daemon()
        refuse(w, kind)
        for _ in range(2):
            forge(w, kind, holds)
            await w.clock.sleep(30)
            told = conditions(w, kind)
            own = [each for each in KUBERNETES if told[each][1] != "Forged"]
            assert own
            assert all(told[each][0] == "False" for each in (*own, *OWN))
            assert told["gpusched.io/Scheduled"][1] == "InvalidSpec"
            assert all("minCount" in told[each][2] for each in (*own, *OWN))

    play(scenario)


def test_a_refused_group_of_coscheduling_is_not_shown_as_running(play):
    """It has no conditions: its phase and its counts are what its pods are."""
    kind = "podgroups.scheduling.x-k8s.io"

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, kind)
        w.daemon()
        refuse(w, kind)
        for _ in range(2):
            forge(w, kind)
            await w.clock.sleep(30)
            status = w.client.get(kind, "default", "liar")["status"]
            assert (status["phase"], status.get("running")) == ("Pending", None)

    play(scenario)


def test_a_refused_group_of_volcano_is_not_shown_as_running(play):
    """Its status is its author's to write: phase, counts and Scheduled are ours all the same."""
    kind = "podgroups.scheduling.volcano.sh"

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, kind)
        w.daemon()
        refuse(w, kind)
        w.pod("p", annotations={"scheduling.k8s.io/group-name": "liar"})
        for _ in range(2):
            forge(w, kind)
            await w.clock.sleep(30)
            status = w.client.get(kind, "default", "liar")["status"]
            assert (status["phase"], status.get("running")) == ("Pending", None)
            told = conditions(w, kind)
            assert told["Scheduled"][:2] == ("False", "InvalidSpec")
            assert told["Unschedulable"][0] == "True"
            assert "spec.minMember" in told["Scheduled"][2]

    play(scenario)


def test_a_group_that_runs_and_is_made_unreadable_has_started(play, kinds):
    """Kubernetes' own condition never goes back from True; ours says what is wrong now."""
    kind = "podgroups.scheduling.k8s.io"

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, kind)
        w.daemon()
        refuse(w, kind, {"schedulingPolicy": {"gang": {"minCount": 1}}})
        w.pod("p", labels={"gpusched.io/pod-group": "liar"})
        w.client.patch(
            "pods", "default", "p", {"metadata": {"annotations": {"gpusched.io/run-for": "1h"}}}
        )
        started = "PodGroupInitiallyScheduled"
        await w.until(lambda: conditions(w, kind).get(started, ("",))[0] == "True")
        notes = {"metadata": {"annotations": {"gpusched.io/schedule-timeout": "soon"}}}
        w.client.patch(kind, "default", "liar", notes)
        await w.until(lambda: conditions(w, kind)["gpusched.io/Scheduled"][1] == "InvalidSpec")
        await w.clock.sleep(10)
        assert conditions(w, kind)[started][0] == "True"

    play(scenario)
