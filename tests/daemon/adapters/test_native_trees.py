"""CompositePodGroups: trees of groups that are decided as one, and trees that are wrong."""

from __future__ import annotations

import pytest

from gpusched.cli.inspect.explaining.explanation import explain_gang
from gpusched.cli.inspect.explaining.explanation_text import render_explanation
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.io.client.api_client import ApiClient
from tests.behaviour.fuzz.foreign_kinds import ANY, SCHEMAS, install
from tests.daemon.adapters.test_native_status import GROUPS, member, running
from tests.daemon.sentences.explained import ANY_GANG, OF_API

TREES = "compositepodgroups.scheduling.k8s.io"
OURS = "gpusched.io/Scheduled"
OWN = "CompositePodGroupInitiallyScheduled"


@pytest.fixture(autouse=True)
def native_kinds(monkeypatch):
    """The kinds of 1.37, as far as they are read."""
    monkeypatch.setitem(SCHEMAS, GROUPS, ("v1alpha3", "PodGroup", True, ANY, ANY))
    monkeypatch.setitem(SCHEMAS, TREES, ("v1alpha3", "CompositePodGroup", True, ANY, ANY))


async def ready(w, nodes, **more):
    """A cluster that serves both kinds, and a daemon."""
    await w.start(nodes=nodes, **more)
    await install(w, TREES, GROUPS)
    w.daemon()


def make(w, kind, name, policy, parent="", *, workload="w", **spec):
    """A group of either kind."""
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return w.client.create(
        TREES if kind == "CompositePodGroup" else GROUPS,
        {
            "apiVersion": "scheduling.k8s.io/v1alpha3",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "schedulingPolicy": policy,
                "workloadRef": {"workloadName": workload, "templateName": "t"},
                **spec,
            },
        },
    )


def tree(w, name, groups, parent="", **more):
    """A CompositePodGroup that needs so many groups at once."""
    make(w, "CompositePodGroup", name, {"gang": {"minGroupCount": groups}}, parent, **more)


def leaf(w, name, count, parent, **more):
    """A PodGroup of a tree that needs so many pods."""
    make(w, "PodGroup", name, {"gang": {"minCount": count}}, parent, **more)


def told(w, resource, name):
    """Status, reason and message of each condition of an object by type."""
    status = w.client.get(resource, "default", name).get("status") or {}
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in status.get("conditions", ())
    }


def pods_of(w, group, count):
    """So many pods that name a group."""
    for number in range(count):
        member(w, group, number, annotations={"gpusched.io/run-for": "10h"})


def test_two_groups_start_together_or_not_at_all(play):
    """Given room for three of four pods, neither child of the tree starts; with room both do."""

    async def scenario(w):
        await ready(w, 3)
        tree(w, "root", 2)
        leaf(w, "a", 2, "root")
        leaf(w, "b", 2, "root")
        pods_of(w, "a", 2)
        pods_of(w, "b", 2)
        await w.until(lambda: OURS in told(w, TREES, "root"))
        await w.clock.sleep(20)
        assert running(w, "a") + running(w, "b") == []
        assert told(w, TREES, "root")[OWN][:2] == ("False", "Unschedulable")
        await w.until(lambda: OURS in told(w, GROUPS, "a"))
        assert told(w, GROUPS, "a")[OURS][0] == "False"
        assert "CompositePodGroup root" in told(w, GROUPS, "a")[OURS][2]
        w.node("late")
        await w.until(lambda: len(running(w, "a") + running(w, "b")) == 4)
        await w.until(lambda: told(w, TREES, "root")[OWN][0] == "True")
        for name in ("a", "b"):
            await w.until(
                lambda name=name: told(w, GROUPS, name)["PodGroupInitiallyScheduled"][0] == "True"
            )
        assert "2 pods placed, 2 needed" in told(w, GROUPS, "a")[OURS][2]

    play(scenario)


def test_one_of_two_groups_is_enough_where_the_tree_says_so(play):
    """Given minGroupCount 1 and room for one child, it starts and the other says that it waits."""

    async def scenario(w):
        await ready(w, 3)
        tree(w, "root", 1)
        leaf(w, "a", 2, "root")
        leaf(w, "b", 2, "root")
        pods_of(w, "a", 2)
        pods_of(w, "b", 2)
        await w.until(lambda: len(running(w, "a") + running(w, "b")) == 2)
        await w.until(lambda: told(w, TREES, "root").get(OWN, ("",))[0] == "True")
        assert {len(running(w, "a")), len(running(w, "b"))} == {0, 2}
        waits = "b" if running(w, "a") else "a"
        await w.until(lambda: OURS in told(w, GROUPS, waits))
        assert told(w, GROUPS, waits)[OURS][0] == "False"

    play(scenario)


def test_children_lie_in_their_own_domains_within_that_of_their_parent(play):
    """Given a zone for the tree and a rack for each child, both levels hold."""

    async def scenario(w):
        await ready(w, 0)
        for zone in "xy":
            for rack in "12":
                for number in range(2 if zone == "y" else 1):
                    labels = {"example.com/zone": zone, "example.com/rack": f"{zone}{rack}"}
                    w.node(f"n-{zone}{rack}-{number}", **labels)
        tree(w, "root", 2, schedulingConstraints={"topology": [{"key": "example.com/zone"}]})
        for name in "ab":
            leaf(w, name, 2, "root",
                 schedulingConstraints={"topology": [{"key": "example.com/rack"}]})  # fmt: skip
            pods_of(w, name, 2)
        await w.until(lambda: len(running(w, "a") + running(w, "b")) == 4)
        nodes = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"].split("-")[1] for pod in w.bound()
        }
        racks = [{nodes[f"{name}-{number}"] for number in range(2)} for name in "ab"]
        assert sorted(map(len, racks)) == [1, 1]
        assert {rack[0] for each in racks for rack in each} == {"y"}

    play(scenario)


def test_a_tree_that_goes_as_one_is_one_victim(play):
    """Given a claimant for one node, all pods of both children leave."""

    async def scenario(w):
        await ready(w, 4)
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 100,
            },
        )
        tree(w, "root", 1, disruptionMode={"all": {}})
        leaf(w, "a", 1, "root")
        leaf(w, "b", 1, "root")
        pods_of(w, "a", 2)
        pods_of(w, "b", 2)
        await w.until(lambda: len(running(w, "a") + running(w, "b")) == 4)
        w.pod("high", spec={"priorityClassName": "high"})
        await w.until(lambda: running(w, "high") == ["high"])
        assert running(w, "a") + running(w, "b") == []
        await w.until(lambda: "DisruptionTarget" in told(w, TREES, "root"))

    play(scenario)


def test_a_child_without_its_parent_is_held_with_the_reason(play):
    """Given a group whose parent comes later, it starts with its tree alone."""

    async def scenario(w):
        await ready(w, 3)
        leaf(w, "a", 3, "root")
        pods_of(w, "a", 3)
        await w.until(lambda: OURS in told(w, GROUPS, "a"))
        assert "CompositePodGroup default/root does not exist" in told(w, GROUPS, "a")[OURS][2]
        await w.until(lambda: "does not exist" in w.told("a-0").get("message", ""))
        tree(w, "root", 2)
        await w.until(
            lambda: "needs 2 groups together; 1 exists" in w.told("a-0").get("message", "")
        )
        assert running(w, "a") == []
        leaf(w, "b", 1, "root")
        w.node("late")
        pods_of(w, "b", 1)
        await w.until(lambda: len(running(w, "a") + running(w, "b")) == 4)

    play(scenario)


def circle(w):
    """Two groups that are in each other."""
    tree(w, "p", 1, "q")
    tree(w, "q", 1, "p")
    leaf(w, "a", 1, "p")


def deep(w):
    """Five levels of CompositePodGroups."""
    tree(w, "p", 1)
    for number, parent in enumerate(("p", "c0", "c1", "c2")):
        tree(w, f"c{number}", 1, parent)
    leaf(w, "a", 1, "c3")


def several_workloads(w):
    """A child of another Workload."""
    tree(w, "p", 1)
    leaf(w, "a", 1, "p", workload="other")


def unknown_policy(w):
    """A child with a policy of a later version."""
    tree(w, "p", 1)
    make(w, "PodGroup", "a", {"elastic": {}}, "p")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (circle, "are in each other"),
        (deep, "5 levels deep, and 4 are the most"),
        (several_workloads, "several Workloads (other, w)"),
        (unknown_policy, "'elastic' is not known"),
    ],
)
def test_a_bad_tree_is_told_and_holds_nothing_else_up(play, bad, why):
    """Given a tree that is none, its groups say why and a group beside it starts."""

    async def scenario(w):
        await ready(w, 2)
        bad(w)
        pods_of(w, "a", 1)
        leaf(w, "good", 1, "")
        pods_of(w, "good", 1)
        await w.until(lambda: running(w, "good") == ["good-0"])
        await w.until(lambda: why in w.told("a-0").get("message", ""))
        assert why in told(w, GROUPS, "a")[OURS][2]
        await w.until(lambda: OURS in told(w, TREES, "p"))
        assert why in told(w, TREES, "p")[OURS][2]
        assert told(w, TREES, "p")[OWN][:2] == ("False", "Invalid")
        assert running(w, "a") == []

    play(scenario)


@pytest.mark.parametrize("what", ["priority", "scheduler"])
def test_pods_of_one_tree_have_one_priority_and_one_scheduler(play, what):
    """Given two of either, the tree waits and says which."""

    async def scenario(w):
        await ready(w, 2)
        w.client.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 100,
            },
        )
        tree(w, "root", 1)
        leaf(w, "a", 1, "root")
        leaf(w, "b", 1, "root")
        spec = {"priorityClassName": "high"} if what == "priority" else {"schedulerName": "other"}
        member(w, "b", 0, spec=spec)
        member(w, "a", 0)
        await w.until(lambda: OURS in told(w, TREES, "root"))
        word = "several priorities (0, 100)" if what == "priority" else "several schedulers"
        await w.until(lambda: word in told(w, TREES, "root")[OURS][2])
        assert running(w, "a") == []

    play(scenario)


def test_explain_shows_the_tree_of_a_running_cluster(play):
    """Given a tree of which one group cannot start, it shows what each group has."""

    async def scenario(w):
        await ready(w, 3)
        tree(w, "job", 2)
        rack = {"topology": [{"key": "gpusched.io/rack"}]}
        leaf(w, "lead", 1, "job")
        tree(w, "workers", 1, "job")
        leaf(w, "a", 2, "workers", schedulingConstraints=rack)
        leaf(w, "b", 2, "workers", schedulingConstraints=rack)
        for group, count in (("lead", 1), ("a", 2), ("b", 2)):
            pods_of(w, group, count)
        await w.until(lambda: len(w.running()) == 3)
        api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
        w.closing.append(api.close)
        found = await gather_objects(
            api, namespace="default", name="workers", kinds=ANY_GANG, source=OF_API
        )
        drawn = render_explanation(explain_gang(found)).split("\n\n")[1]
        assert drawn.splitlines() == [
            "GROUP                          NEEDS      PLACED   READY   LEVEL",
            "CompositePodGroup job          2 groups   2 of 2",
            "|- CompositePodGroup workers   1 group    1 of 2",
            "|  |- PodGroup a               2 pods     2 of 2   2       gpusched.io/rack",
            "|  `- PodGroup b               2 pods     0 of 2   0       gpusched.io/rack",
            "`- PodGroup lead               1 pod      1 of 1   1",
        ]

    play(scenario)
