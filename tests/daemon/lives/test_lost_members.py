"""Members that are lost of gangs that no PodGroup of ours describes: room, grace and restarts."""

from __future__ import annotations

import pytest

from gpusched.base import installed_files
from tests.behaviour.fuzz.foreign_kinds import install, make
from tests.populations import one_of

NATIVE = "podgroups.scheduling.k8s.io"
VOLCANO = "podgroups.scheduling.volcano.sh"
COSCHEDULING = "podgroups.scheduling.x-k8s.io"
KAI = "podgroups.scheduling.run.ai"
OWNER = "gpusched.io/min-member"
KINDS = (NATIVE, VOLCANO, COSCHEDULING, KAI, OWNER)
"""What makes a gang: PodGroups of other projects, and pods that only name their minimum."""
FOR_HOURS = {"gpusched.io/run-for": "10h"}


@pytest.fixture
def hasty(tmp_path):
    """A configuration in which a gang below its minimum is stopped after ten seconds."""
    shipped = (installed_files.path("conf") / "gpusched.yaml").read_text()
    assert "staleAfter: 60s" in shipped
    file = tmp_path / "hasty.yaml"
    file.write_text(shipped.replace("staleAfter: 60s", "staleAfter: 10s"))
    return str(file)


async def kind_known(w, kind):
    """Install the kind, where it is one."""
    if kind == NATIVE:
        w.client.create("customresourcedefinitions.apiextensions.k8s.io", native_definition())
        await w.until(lambda: w.client.kind_of("scheduling.k8s.io/v1alpha2", "PodGroup"))
    elif kind != OWNER:
        await install(w, kind)


def native_definition():
    """Kubernetes' own PodGroup, as far as it is read."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha2",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": anything, "status": anything},
            }
        },
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NATIVE, "annotations": {"api-approved.kubernetes.io": "a test"}},
        "spec": {
            "group": "scheduling.k8s.io",
            "scope": "Namespaced",
            "names": {"plural": "podgroups", "kind": "PodGroup", "listKind": "PodGroupList"},
            "versions": [version],
        },
    }


def foreign_gang(w, kind, name, minimum):
    """The object that describes a gang, where it has one."""
    if kind == NATIVE:
        policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        w.client.create(
            NATIVE,
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "default"},
                "spec": policy,
            },
        )
    elif kind != OWNER:
        make(w, kind, name, {"minMember": minimum})


def member(w, kind, name, number, minimum, *, gpus=8):
    """One pod of the gang, which nobody makes again."""
    notes, labels, owners = dict(FOR_HOURS), {}, []
    if kind == NATIVE:
        labels["gpusched.io/pod-group"] = name
    elif kind == COSCHEDULING:
        labels["scheduling.x-k8s.io/pod-group"] = name
    elif kind == VOLCANO:
        notes["scheduling.k8s.io/group-name"] = name
    elif kind == KAI:
        notes["pod-group-name"] = name
    else:
        notes[OWNER] = str(minimum)
        owners = [
            {
                "apiVersion": "x/v1",
                "kind": "Trainer",
                "name": name,
                "uid": "u-1",
                "controller": True,
            }
        ]
    w.pod(
        f"{name}-{number}", gpus=gpus, labels=labels, annotations=notes, ownerReferences=owners
    )  # fmt: skip


def gone(w, name):
    """A pod is lost at once, as with its node."""
    w.client.delete("pods", "default", name, grace_s=0)


def node_of(w, name):
    """Where a pod is; empty for nowhere."""
    return w.client.get("pods", "default", name)["spec"].get("nodeName", "")


def bound_names(w):
    """Names of the pods with a node, sorted."""
    return sorted(pod["metadata"]["name"] for pod in w.bound())


async def started(w, kind, count=3, *, name="a"):
    """A gang of so many pods runs, and a single waits for room."""
    foreign_gang(w, kind, name, count)
    for number in range(count):
        member(w, kind, name, number, count)
    await w.until(lambda: len(w.running()) == count)


@pytest.mark.parametrize("kind", one_of(2, KINDS, first=0))
def test_room_of_a_lost_member_waits_until_it_is_made_again(play, kind):
    """Given a single that waits, then it does not get what a running gang has just lost."""

    async def scenario(w):
        await w.start(nodes=3)
        await kind_known(w, kind)
        w.daemon()
        await started(w, kind)
        w.pod("single", annotations=FOR_HOURS)
        await w.until(lambda: w.told("single").get("status") == "False")
        gone(w, "a-2")
        await w.clock.sleep(30)
        assert not node_of(w, "single")
        member(w, kind, "a", 3, 3)
        await w.until(lambda: bound_names(w) == ["a-0", "a-1", "a-3"])
        await w.clock.sleep(120)
        assert bound_names(w) == ["a-0", "a-1", "a-3"]

    play(scenario)


@pytest.mark.parametrize("kind", one_of(2, KINDS, first=1))
def test_what_is_left_of_a_gang_is_stopped_after_its_grace(play, hasty, kind):
    """Given ten seconds of grace and no replacement, when they are over, then nobody of it runs."""

    async def scenario(w):
        await w.start(nodes=3)
        await kind_known(w, kind)
        w.daemon(config_file=hasty)
        await started(w, kind)
        await w.clock.sleep(5)
        gone(w, "a-2")
        lost = w.clock.now()
        await w.clock.sleep(8)
        assert bound_names(w) == ["a-0", "a-1"]
        await w.until(lambda: not w.bound(), within=25)
        assert w.clock.now() - lost < 22

    play(scenario)


@pytest.mark.parametrize("kind", one_of(2, KINDS, first=0))
def test_a_restart_gives_a_broken_gang_no_more_time_and_no_less_room(play, kind):
    """Given a daemon that dies 30 s after the loss, then the next one stops it at 60 s all the same."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=3)
        await kind_known(w, kind)
        first = w.daemon()
        await started(w, kind)
        w.pod("single", annotations=FOR_HOURS)
        await w.clock.sleep(5)
        gone(w, "a-2")
        lost = w.clock.now()
        await w.clock.sleep(30)
        first.kill()
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(max(0.0, lost + 55 - w.clock.now()))
        assert bound_names(w) == ["a-0", "a-1"]
        await w.until(lambda: bound_names(w) == ["single"], within=30)
        assert w.clock.now() - lost < 80

    play(scenario)


@pytest.mark.parametrize("kind", one_of(2, KINDS, first=1))
def test_a_member_lost_while_no_daemon_runs_is_missed_by_the_next(play, kind):
    """Given a loss between two daemons, then the second holds the room and grants the whole grace."""

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=3)
        await kind_known(w, kind)
        first = w.daemon()
        await started(w, kind)
        w.pod("single", annotations=FOR_HOURS)
        await w.clock.sleep(200)
        first.kill()
        gone(w, "a-2")
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(40)
        assert bound_names(w) == ["a-0", "a-1"]
        member(w, kind, "a", 3, 3)
        await w.until(lambda: bound_names(w) == ["a-0", "a-1", "a-3"])

    play(scenario)


@pytest.mark.parametrize("kind", one_of(2, KINDS, first=0))
def test_extras_that_wait_do_not_make_a_gang_that_ran_one_that_never_did(play, kind):
    """Given 2 of 3 needed and no room for the third, when one is lost, then the third joins.

    It waits since before the others were bound, which is also how a gang looks that was bound in
    part: nothing of this one is taken back.
    """

    async def scenario(w):
        w.check_journal = False
        await w.start(nodes=2)
        await kind_known(w, kind)
        first = w.daemon()
        foreign_gang(w, kind, "a", 2)
        for number in range(3):
            member(w, kind, "a", number, 2)
        await w.until(lambda: len(w.running()) == 2)
        await w.clock.sleep(200)
        first.kill()
        lost, left = bound_names(w)
        w.client.patch("nodes", None, node_of(w, lost), {"spec": {"unschedulable": True}})
        gone(w, lost)
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(30)
        assert bound_names(w) == [left]
        w.node("late")
        await w.until(lambda: len(w.bound()) == 2)
        assert left in bound_names(w)

    play(scenario)


def test_a_gang_of_a_job_keeps_the_room_of_a_member_that_failed(play):
    """Given README's gang without a PodGroup, then its Job's new pod takes the place of the old."""

    async def scenario(w):
        await w.start(nodes=3)
        w.daemon()
        w.job("a", 3)
        await w.until(lambda: len(w.running()) == 3)
        w.pod("single", annotations=FOR_HOURS)
        await w.until(lambda: w.told("single").get("status") == "False")
        gone(w, w.bound()[0]["metadata"]["name"])
        await w.clock.sleep(90)
        assert not node_of(w, "single")
        assert len(w.bound()) == 3

    play(scenario)
