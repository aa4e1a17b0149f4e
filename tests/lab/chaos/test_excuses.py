"""What the witnesses of chaos runs do not call a fault, and the nearest thing that they do."""

from __future__ import annotations

import copy

from gpusched.devcluster.storage.store import Store
from gpusched.lab.chaos.invariant_checker import InvariantChecker
from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts import script
from gpusched.lab.chaos.starvation import starving_gangs
from gpusched.lab.chaos.steps.objects import BUDGETS, GPU, GROUPS, JOBS, QUEUES
from gpusched.testing.invariants import nodes

READY = [{"type": "Ready", "status": "True"}]


def node(gpus):
    """A node that is ready."""
    allocatable = {GPU: str(gpus), "cpu": "64", "pods": "110"}
    return {
        "metadata": {"name": "n"},
        "spec": {},
        "status": {"allocatable": allocatable, "conditions": READY},
    }


def pod(name, *, on="n", ours=True, **asks):
    """A pod, bound by us unless told otherwise."""
    notes = {"gpusched.io/plan": "p", "gpusched.io/slots": "0", "gpusched.io/fence": "d/1"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"gpusched.io/pod-group": "g", "gpusched.io/role": "w"},
            "annotations": notes if ours and on else {},
        },
        "spec": {
            "schedulerName": "gpusched",
            "containers": [{"resources": {"limits": {k: str(v) for k, v in asks.items()}}}],
            **({"nodeName": on} if on else {}),
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def over(newcomer, *others):
    """What is said of a node with 4 GPUs when a pod is bound to it."""
    return [
        str(each)
        for each in nodes.overcommitted_amounts(node(4), [*others, newcomer], newcomer=newcomer)
    ]


def test_a_pod_without_gpus_may_join_a_node_where_others_took_too_many():
    """A foreign pod came while ours was in flight; CPUs of the node stay usable."""
    foreign, earlier = pod("f", ours=False, **{GPU: 4}), pod("e", **{GPU: 1})
    assert over(pod("c", cpu=2), foreign, earlier) == []
    assert len(over(pod("c", cpu=2, **{GPU: 1}), foreign, earlier)) == 1
    assert len(over(pod("c", cpu=65), foreign, earlier)) == 1


def test_a_share_may_not_join_a_node_where_others_took_too_many():
    """It asks for no whole GPU and opens one all the same."""
    share = pod("s")
    share["metadata"]["annotations"]["gpusched.io/gpu-fraction"] = "0.5"
    assert len(over(share, pod("f", ours=False, **{GPU: 4}))) == 1


def test_a_share_has_no_room_beside_one_on_a_node_where_others_took_too_many():
    """A node with 2 GPUs: half of one is shared, and another scheduler's pod has both, or one."""

    def starving(*, foreign):
        shared, waits = pod("s"), pod("w", on="")
        for each in (shared, waits):
            each["metadata"]["annotations"]["gpusched.io/gpu-fraction"] = "0.5"
        found = {**lists(1, least=1), "nodes": [node(2)]}
        found["pods"] = [shared, waits, pod("f", ours=False, **{GPU: foreign})]
        found[GROUPS][0]["spec"] = {"queue": "q", "minMember": 3}
        return list(starving_gangs(found))

    assert starving(foreign=2) == []
    assert len(starving(foreign=1)) == 1


def over_its_capability(**asks):
    """A pod is bound in a queue that holds 12 GPUs and may hold 6, as was cut long ago."""
    now = [0.0]
    store = Store()
    witness = InvariantChecker(store, lambda: now[0], patience_s=1.0)
    spec = {"queue": "q", "minMember": 1}
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    limited = {"metadata": {"name": "q"}, "spec": {"capability": {GPU: "6"}}}
    store.collection(QUEUES).write("q", limited)
    store.collection(GROUPS).write("default/g", group)
    store.collection("nodes").write("n", node(32))
    held = [pod(f"old-{number}", **{GPU: 4}) for number in range(3)]
    new = pod("new", **asks)
    for each in (*held, new):
        each["metadata"]["uid"] = each["metadata"]["name"]
    for each in held:
        store.collection("pods").write(f"default/{each['metadata']['name']}", each)
    now[0] = 100.0
    store.collection("pods").write("default/new", new)
    return [each.finding.invariant for each in witness.seen]


def test_what_asks_for_none_of_a_resource_may_start_whatever_the_queue_holds_of_it():
    assert "I5" not in over_its_capability(cpu=1)
    assert "I5" in over_its_capability(**{GPU: 1})


def lists(count, *, least):
    """A gang of so many waiting pods with a minimum for each role, and room for all of them."""
    spec = {"queue": "q", "minMember": least, "minTaskMember": {"w": count}}
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    return {
        "pods": [pod(f"w{number}", on="", **{GPU: 1}) for number in range(count)],
        "nodes": [node(8)],
        GROUPS: [group],
        QUEUES: [{"metadata": {"name": "q"}, "spec": {}}],
        JOBS: [],
    }


def test_a_gang_whose_minimum_is_above_its_pods_does_not_starve():
    """Whatever it asks of its roles; with as many pods as it needs it does."""
    assert list(starving_gangs(copy.deepcopy(lists(2, least=4)))) == []
    assert len(list(starving_gangs(lists(2, least=2)))) == 1


def test_a_gang_whose_sub_group_lacks_pods_does_not_starve():
    """It has as many pods as it needs; one of them was made again in another sub-group."""

    def starving(*, named):
        found = lists(2, least=2)
        parts = [{"name": name, "minMember": 1} for name in ("a", "b")]
        found[GROUPS][0]["spec"] = {"queue": "q", "minMember": 2, "subGroups": parts}
        for each, name in zip(found["pods"], named, strict=True):
            each["metadata"]["labels"]["gpusched.io/sub-group"] = name
        return list(starving_gangs(found))

    assert starving(named="aa") == []
    assert len(starving(named="ab")) == 1


def bound_in_part(*, allowed):
    """What is said of a gang with one of two pods bound when a budget allows so many evictions."""
    now = [0.0]
    store = Store()
    witness = InvariantChecker(store, lambda: now[0], patience_s=1.0)
    about = {"name": "g", "namespace": "default"}
    group = {"metadata": about, "spec": {"minMember": 2}}
    budget = {
        "metadata": about,
        "spec": {"selector": {"matchLabels": {"gpusched.io/pod-group": "g"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    store.collection(GROUPS).write("default/g", group)
    store.collection(BUDGETS).write("default/g", budget)
    store.collection("nodes").write("n", node(4))
    member = pod("w", **{GPU: 1})
    member["metadata"]["uid"] = "w"
    store.collection("pods").write("default/w", member)
    now[0] = 200.0
    witness.partial(0.0, 120.0)
    return [each.finding.invariant for each in witness.seen]


def test_a_gang_bound_in_part_stays_while_a_budget_forbids_its_evictions():
    assert bound_in_part(allowed=0) == []
    assert bound_in_part(allowed=1) == ["I3"]


def test_a_run_ends_though_the_daemon_that_gave_the_occasion_was_killed_while_paused():
    """A step at an occasion is over when it is done, whatever became of who sent the request."""
    steps = [
        {"at": 0.0, "do": "node", "name": "n0", "gpus": 2, "rack": "r0"},
        {"at": 1.0, "do": "start", "slot": 0},
        {"at": 2.0, "do": "pause", "slot": 0, "for": 9.0, "on": "session"},
        {"at": 3.0, "do": "gang", "name": "g", "queue": "default", "by": "pods", "min": 1,
         "roles": [{"name": "w", "count": 1, "gpus": 1}]},
        {"at": 5.0, "do": "kill", "slot": 0, "writes": 0, "back": 1.0},
    ]  # fmt: skip
    run = play_script(script.parse_script({"seed": 1, "steps": steps}))
    assert run.ok
    assert run.counts["binding"] == 1


def test_what_a_queue_holds_is_known_after_a_restore():
    """Nothing of it changes until it is reclaimed from; it holds 8 GPUs and deserves 1."""
    nodes_4 = [
        {"at": 0.0, "do": "node", "name": f"n{number}", "gpus": 4, "rack": "r0"}
        for number in range(2)
    ]
    steps = [
        *nodes_4,
        {"at": 0.0, "do": "queue", "name": "q1", "deserved": 7},
        {"at": 0.0, "do": "queue", "name": "q2", "deserved": 1},
        {"at": 0.0, "do": "gang", "name": "g2", "queue": "q2", "by": "jobs", "min": 2,
         "roles": [{"name": "w", "count": 2, "gpus": 4}]},
        {"at": 1.0, "do": "start", "slot": 0},
        {"at": 30.0, "do": "remember", "name": "s"},
        {"at": 40.0, "do": "restore", "name": "s", "down": 1},
        {"at": 120.0, "do": "gang", "name": "g1", "queue": "q1", "by": "jobs", "min": 1,
         "roles": [{"name": "w", "count": 1, "gpus": 4}]},
    ]  # fmt: skip
    run = play_script(script.parse_script({"seed": 1, "steps": steps}))
    assert run.counts["eviction"] == 2
    assert run.seen == ()


def said_in_flight(*, late):
    """A PodGroup is said to be scheduled so long after a restore took its binding back."""
    now = [100.0]
    store = Store()
    witness = InvariantChecker(store, lambda: now[0], patience_s=5.0)
    witness.restored()
    now[0] += late
    status = {
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "r", "message": "m"}]
    }
    group = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 1},
        "status": status,
    }
    store.collection(GROUPS).write("default/g", group)
    return [each.finding.invariant for each in witness.seen]


def test_what_was_said_before_a_restore_may_arrive_after_it():
    """Not when everybody can know of it."""
    assert said_in_flight(late=2.0) == []
    assert said_in_flight(late=6.0) == ["I15"]
