"""Workloads made for Volcano and coscheduling run unchanged, and see their own status."""

from __future__ import annotations

from tests.behaviour.fuzz.foreign_kinds import install, make

GROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
KAI_GROUPS = "podgroups.scheduling.run.ai"
CO_GROUPS = "podgroups.scheduling.x-k8s.io"
NAMED = "scheduling.k8s.io/group-name"


def status(w, resource, name):
    """The status of an object, empty while nobody wrote one."""
    namespace = None if resource.startswith("queues") else "default"
    return w.client.get(resource, namespace, name).get("status") or {}


def held(w, *names):
    """Which of these pods have a node."""
    return [n for n in names if w.client.get("pods", "default", n)["spec"].get("nodeName")]


def says(w, name, kind):
    """A condition of a Volcano PodGroup, empty while it is not there."""
    found = [c for c in status(w, GROUPS, name).get("conditions", ()) if c["type"] == kind]
    return found[0] if found else {}


def test_a_volcano_gang_starts_whole_in_its_volcano_queue(play):
    """Given a queue and a PodGroup of three, when room for two becomes room for three."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS, QUEUES)
        make(w, QUEUES, "root", {"weight": 1})
        make(w, QUEUES, "team", {"weight": 2, "capability": {"nvidia.com/gpu": "24"}})
        make(w, GROUPS, "train", {"minMember": 3, "queue": "team"})
        w.daemon()
        for number in range(3):
            w.pod(f"train-{number}", annotations={NAMED: "train"})
        await w.until(lambda: says(w, "train", "Unschedulable").get("status") == "True")
        said = says(w, "train", "Unschedulable")
        assert said["reason"] == "NotEnoughResources"
        assert "3 pods with 8 nvidia.com/gpu" in said["message"]
        assert said["transitionID"]
        assert status(w, GROUPS, "train")["phase"] == "Inqueue"
        assert held(w, "train-0", "train-1", "train-2") == []
        w.node("late")
        await w.until(lambda: len(held(w, "train-0", "train-1", "train-2")) == 3)
        await w.until(lambda: status(w, GROUPS, "train").get("phase") == "Running")
        await w.until(lambda: says(w, "train", "Scheduled").get("status") == "True")
        assert says(w, "train", "Unschedulable")["status"] == "False"
        await w.until(lambda: status(w, GROUPS, "train").get("running") == 3)
        await w.until(
            lambda: status(w, QUEUES, "team").get("allocated", {}).get("nvidia.com/gpu") == "24"
        )
        assert status(w, QUEUES, "team")["state"] == "Open"
        assert status(w, QUEUES, "team")["running"] == 1
        assert status(w, QUEUES, "root") == {}

    play(scenario)


def test_a_volcano_queue_has_its_capability(play):
    """Given a queue capped at one node, when two gangs of a node come, then one waits for it."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS, QUEUES)
        make(w, QUEUES, "small", {"capability": {"nvidia.com/gpu": "8"}})
        w.daemon()
        for name in ("a", "b"):
            make(w, GROUPS, name, {"minMember": 1, "queue": "small"})
            w.pod(name, annotations={NAMED: name})
        await w.until(lambda: len(held(w, "a", "b")) == 1)
        waits = "b" if held(w, "a") else "a"
        await w.until(lambda: "queue small" in says(w, waits, "Unschedulable").get("message", ""))
        await w.clock.sleep(30)
        assert len(held(w, "a", "b")) == 1

    play(scenario)


def test_minima_of_roles_hold_when_they_fit_into_the_minimum(play):
    """Given one master and one worker at least, when only workers are there, nobody starts."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS, QUEUES)
        make(w, GROUPS, "g", {"minMember": 2, "minTaskMember": {"master": 1, "worker": 1}})
        w.daemon()
        for number in range(2):
            w.pod(f"w-{number}", annotations={NAMED: "g", "volcano.sh/task-spec": "worker"})
        await w.until(lambda: says(w, "g", "Unschedulable").get("reason") == "NotEnoughTasks")
        assert held(w, "w-0", "w-1") == []
        w.pod("m", annotations={NAMED: "g", "volcano.sh/task-spec": "master"})
        await w.until(lambda: len(held(w, "m", "w-0", "w-1")) == 2)
        assert held(w, "m") == ["m"]

    play(scenario)


def test_minima_of_roles_above_the_minimum_are_ignored_and_said(play):
    """As in Volcano: minMember 1 under two roles of one each lets a worker start alone."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS, QUEUES)
        make(w, GROUPS, "g", {"minMember": 1, "minTaskMember": {"master": 1, "worker": 1}})
        w.daemon()
        w.pod("w-0", annotations={NAMED: "g", "volcano.sh/task-spec": "worker"})
        await w.until(lambda: held(w, "w-0"))
        await w.until(lambda: says(w, "g", "Scheduled").get("status") == "True")
        remark = "minTaskMember adds up to 2 and is ignored, as minMember is 1"
        assert remark in says(w, "g", "Scheduled")["message"]

    play(scenario)


def test_a_volcano_group_without_pods_is_let_in(play):
    """Volcano's job controller makes pods only when it sees Inqueue."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS, QUEUES)
        w.daemon()
        make(w, GROUPS, "g", {"minMember": 1, "minResources": {"nvidia.com/gpu": 8}})
        await w.until(lambda: status(w, GROUPS, "g").get("phase") == "Inqueue")

    play(scenario)


def test_kinds_may_come_while_the_daemon_runs_and_go_again(play):
    """Given a daemon on a cluster without Volcano, when its CRDs come, then its gangs start."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        w.pod("p", annotations={NAMED: "g"})
        await w.until(lambda: "does not exist" in w.told("p").get("message", ""))
        await install(w, GROUPS, QUEUES)
        make(w, GROUPS, "g", {"minMember": 1})
        await w.until(lambda: held(w, "p"))
        for name in (GROUPS, QUEUES):
            w.client.delete("customresourcedefinitions.apiextensions.k8s.io", None, name)
        await w.until(lambda: not daemon.app.cache.groups.items)
        assert daemon.app.unready() == ""

    play(scenario)


def test_our_own_group_counts_where_both_are_there(play):
    """Given both PodGroups of one name, the minimum of ours decides, and only ours is written."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS, QUEUES)
        make(w, GROUPS, "g", {"minMember": 2})
        w.group("g", minMember=1)
        w.daemon()
        w.pod("p", annotations={NAMED: "g"})
        await w.until(lambda: held(w, "p"))
        await w.until(lambda: w.condition("g").get("status") == "True")
        assert status(w, GROUPS, "g") == {}

    play(scenario)


def test_a_coscheduling_gang_is_scheduled_then_running_then_finished(play):
    """The phases of scheduler-plugins, in its own status."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, CO_GROUPS)
        make(w, CO_GROUPS, "g", {"minMember": 2, "scheduleTimeoutSeconds": 10})
        w.daemon()
        more = {
            "labels": {"scheduling.x-k8s.io/pod-group": "g"},
            "annotations": {"gpusched.io/run-for": "60s"},
        }
        w.pod("p-0", gpus=4, **more)
        await w.until(lambda: status(w, CO_GROUPS, "g").get("phase") == "Pending")
        await w.clock.sleep(5)
        assert held(w, "p-0") == []
        w.pod("p-1", gpus=4, **more)
        await w.until(lambda: status(w, CO_GROUPS, "g").get("phase") in {"Scheduling", "Running"})
        await w.until(lambda: status(w, CO_GROUPS, "g").get("scheduleStartTime"))
        await w.until(lambda: status(w, CO_GROUPS, "g").get("phase") == "Finished", within=300)
        assert status(w, CO_GROUPS, "g")["succeeded"] == 2

    play(scenario)


def test_a_kind_that_may_not_be_read_is_no_obstacle(play):
    """Given 403 on Volcano's kinds, everything else goes on, and nothing is asked in a storm."""

    async def scenario(w):
        await w.start(nodes=1)
        await install(w, GROUPS, QUEUES)
        asked = []

        def fault(method, path):
            if path.startswith("/apis/scheduling.volcano.sh/v1beta1/"):
                asked.append(path)
                return "403"
            return ""

        daemon = w.daemon(fault=fault)
        w.gang("own", 1)
        await w.until(lambda: len(w.running("own")) == 1)
        await w.clock.sleep(300)
        assert daemon.app.unready() == ""
        assert len(asked) < 60  # two kinds, each twice a minute once the back-off has grown

    play(scenario)


def test_a_hard_tier_of_volcano_holds_the_gang_in_one_domain(play):
    """Given racks of one and two free nodes, a gang of two with tier 1 goes to the second rack."""

    async def scenario(w):
        await w.start(nodes=0)
        await install(w, GROUPS, QUEUES)
        for name, rack in (("n0", "r0"), ("n1", "r1"), ("n2", "r1")):
            w.node(name, **{"gpusched.io/rack": rack})
        hard = {"mode": "hard", "highestTierAllowed": 1}
        for name, count in (("big", 3), ("g", 2)):
            make(w, GROUPS, name, {"minMember": count, "networkTopology": hard})
        w.daemon()
        for name, count in (("big", 3), ("g", 2)):
            for number in range(count):
                w.pod(f"{name}-{number}", annotations={NAMED: name})
        await w.until(lambda: len(held(w, "g-0", "g-1")) == 2)
        assert {pod["spec"]["nodeName"] for pod in w.bound()} == {"n1", "n2"}
        await w.until(lambda: says(w, "big", "Unschedulable").get("status") == "True")
        assert "in one rack" in says(w, "big", "Unschedulable")["message"]

    play(scenario)


def test_sub_groups_of_kai_are_placed_each_in_its_domain(play):
    """Given two parts of two pods that each need one rack, every part has a rack to itself."""

    async def scenario(w):
        await w.start(nodes=0)
        await install(w, KAI_GROUPS)
        for number in range(4):
            w.node(f"n{number}", **{"gpusched.io/rack": f"r{number // 2}"})
        rack = {"requiredTopologyLevel": "gpusched.io/rack"}
        parts = [{"name": name, "minMember": 2, "topologyConstraint": rack} for name in "ab"]
        make(w, KAI_GROUPS, "g", {"minMember": 4, "subGroups": parts})
        w.daemon()
        for name in ("a-0", "b-0", "a-1", "b-1"):
            w.pod(
                name,
                labels={"kai.scheduler/subgroup-name": name[0]},
                annotations={"pod-group-name": "g"},
            )
        await w.until(lambda: len(held(w, "a-0", "b-0", "a-1", "b-1")) == 4)
        racks = {
            name: {
                int(pod["spec"]["nodeName"][1:]) // 2
                for pod in w.bound()
                if pod["metadata"]["name"][0] == name
            }
            for name in "ab"
        }
        assert sorted(map(sorted, racks.values())) == [[0], [1]]

    play(scenario)


def test_sub_groups_of_kai_with_children_are_placed_in_their_domain(play):
    """Given two parts of two pods in one that needs a zone, both are in the zone that holds both."""

    async def scenario(w):
        await w.start(nodes=0)
        await install(w, KAI_GROUPS)
        for zone, count in (("x", 3), ("y", 4)):
            for number in range(count):
                w.node(f"{zone}{number}", **{"topology.kubernetes.io/zone": zone})
        zone = {"requiredTopologyLevel": "topology.kubernetes.io/zone"}
        parts = [{"name": "slice", "topologyConstraint": zone}]
        parts += [{"name": name, "minMember": 2, "parent": "slice"} for name in "ab"]
        make(w, KAI_GROUPS, "g", {"minMember": 1, "subGroups": parts})
        w.daemon()
        for name in ("a-0", "b-0", "a-1", "b-1"):
            w.pod(
                name,
                labels={"kai.scheduler/subgroup-name": name[0]},
                annotations={"pod-group-name": "g"},
            )
        await w.until(lambda: len(held(w, "a-0", "b-0", "a-1", "b-1")) == 4)
        assert {pod["spec"]["nodeName"][0] for pod in w.bound()} == {"y"}

    play(scenario)


def test_a_kind_whose_lists_fail_stops_only_its_own_gangs(play):
    """Given 500 on Volcano's PodGroups, as from a broken webhook, other gangs start; then heals."""

    async def scenario(w):
        await w.start(nodes=2)
        await install(w, GROUPS, QUEUES)
        make(w, GROUPS, "g", {"minMember": 1})
        broken = [True]
        listed = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
        w.daemon(fault=lambda _method, path: "500" if broken[0] and path == listed else "")
        w.gang("own", 1)
        w.pod("p", annotations={NAMED: "g"})
        await w.until(lambda: len(w.running("own")) == 1)
        assert held(w, "p") == []
        broken[0] = False
        await w.until(lambda: held(w, "p"))

    play(scenario)
