"""Worlds in which something waits, one for each row of docs/why-it-waits.md.

Each is an async function of a world whose cluster has two nodes of eight GPUs in rack r0 and a daemon
that leads; it makes what waits and returns what a user asks ``explain`` about: kind and name.
"""

from __future__ import annotations

from tests.behaviour.fuzz.foreign_kinds import install, make
from tests.daemon.adapters.test_adapters_owners import JOBSETS, job_set, job_set_pod
from tests.daemon.conftest import pod_spec
from tests.daemon.inputs.test_bad_queues import queue

GROUP = "gpusched.io/pod-group"
SUB_GROUP = "gpusched.io/sub-group"
ROLE = "gpusched.io/role"
PRODUCT = "nvidia.com/gpu.product"


def patch_nodes(w, change, *names):
    """The same change of some nodes, of both where none is named."""
    for name in names or ("node-0", "node-1"):
        w.client.patch("nodes", None, name, change)


def containers(**limits):
    """A pod's spec with one container that has these limits."""
    named = {"gpu": "nvidia.com/gpu"}
    amounts = {named.get(key, key): value for key, value in limits.items()}
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": amounts}}]}


async def runs(w, name, **how):
    """A pod that runs before what waits is made."""
    w.pod(name, **how)
    await w.until(lambda: any(pod["metadata"]["name"] == name for pod in w.bound()))


# -- room ----------------------------------------------------------------------------------------


async def room_is_taken(w):
    await runs(w, "busy")
    w.gang("train", 2)
    return "podgroup", "train"


async def the_cluster_is_too_small(w):
    w.gang("train", 4)
    return "podgroup", "train"


async def no_node_is_large_enough(w):
    w.pod("large", gpus=16)
    return "pod", "large"


async def no_node_has_the_resource(w):
    w.pod("other", spec=containers(**{"amd.com/gpu": "1"}))
    return "pod", "other"


async def nodes_lack_several_things(w):
    await runs(w, "busy-0")
    await runs(w, "busy-1", spec=containers(gpu="8", cpu="90"))
    w.pod("needy", spec=containers(gpu="4", cpu="20"))
    return "pod", "needy"


async def no_gpu_has_room_for_a_share(w):
    for number in range(2):
        await runs(w, f"busy-{number}")
    w.pod("small", gpus=0, annotations={"gpusched.io/gpu-fraction": "0.5"})
    return "pod", "small"


async def members_do_not_fit_together(w):
    await install(w, JOBSETS)
    make(w, JOBSETS, "js", job_set(("driver", 1, 1), ("worker", 1, 2)))
    job_set_pod(w, "driver", 0, 0)
    for index in range(2):
        job_set_pod(w, "worker", 0, index)
    return "jobset", "js"


# -- rules about nodes and other pods -------------------------------------------------------------


async def nodes_are_tainted(w):
    taint = {"key": "dedicated", "value": "team-x", "effect": "NoSchedule"}
    patch_nodes(w, {"spec": {"taints": [taint]}})
    w.pod("guest")
    return "pod", "guest"


async def nodes_do_not_match_a_selector(w):
    patch_nodes(w, {"metadata": {"labels": {"zone": "b"}}})
    w.pod("chooser", spec={"nodeSelector": {"zone": "a"}})
    return "pod", "chooser"


async def nodes_do_not_match_an_affinity(w):
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    w.pod("chooser", spec={"affinity": {"nodeAffinity": rule}})
    return "pod", "chooser"


async def nodes_are_cordoned(w):
    patch_nodes(w, {"spec": {"unschedulable": True}})
    w.pod("early")
    return "pod", "early"


async def pods_keep_each_other_away(w):
    for name in ("node-0", "node-1"):
        patch_nodes(w, {"metadata": {"labels": {"kubernetes.io/hostname": name}}}, name)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(2):
        await runs(w, f"db-{number}", gpus=1, labels={"app": "db"}, spec={"affinity": rule})
    w.pod("db-2", gpus=1, labels={"app": "db"}, spec={"affinity": rule})
    return "pod", "db-2"


async def pods_would_be_spread_unevenly(w):
    for name in ("node-0", "node-1"):
        patch_nodes(w, {"metadata": {"labels": {"kubernetes.io/hostname": name}}}, name)
    patch_nodes(w, {"spec": {"unschedulable": True}}, "node-1")
    evenly = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    spec = {"topologySpreadConstraints": [evenly]}
    await runs(w, "web-0", gpus=1, labels={"app": "web"}, spec=spec)
    w.pod("web-1", gpus=1, labels={"app": "web"}, spec=spec)
    return "pod", "web-1"


async def a_host_port_is_taken(w):
    patch_nodes(w, {"spec": {"unschedulable": True}}, "node-1")
    spec = containers(gpu="1")
    spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    await runs(w, "web-0", spec=spec)
    w.pod("web-1", spec=spec)
    return "pod", "web-1"


async def a_claim_of_a_volume_is_missing(w):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    w.pod("reader", spec={"volumes": [volume]})
    return "pod", "reader"


async def no_gpu_of_the_product_exists(w):
    patch_nodes(w, {"metadata": {"labels": {PRODUCT: "A100"}}}, "node-0")
    patch_nodes(w, {"metadata": {"labels": {PRODUCT: "H100"}}}, "node-1")
    w.pod("picky", spec={"nodeSelector": {PRODUCT: "H200"}})
    return "pod", "picky"


async def no_gpu_type_that_it_names_exists(w):
    patch_nodes(w, {"metadata": {"labels": {PRODUCT: "A100"}}}, "node-0")
    patch_nodes(w, {"metadata": {"labels": {PRODUCT: "H100"}}}, "node-1")
    w.pod("picky", annotations={"gpusched.io/gpu-types": '{"speeds": {"H200": "1.0"}}'})
    return "pod", "picky"


# -- topology -------------------------------------------------------------------------------------


async def a_rack_is_taken(w):
    w.node("other", **{"gpusched.io/rack": "r1"})
    for name in ("node-0", "other"):
        await runs(w, f"on-{name}", spec={"nodeName": name})
    w.group("train", minMember=2, topology={"required": "rack"})
    w.job("train", 2, group="train")
    return "podgroup", "train"


async def no_rack_is_large_enough(w):
    w.node("other", **{"gpusched.io/rack": "r1"})
    w.group("train", minMember=3, topology={"required": "rack"})
    w.job("train", 3, group="train")
    return "podgroup", "train"


async def a_level_does_not_exist(w):
    w.group("train", minMember=2, topology={"required": "shelf"})
    w.job("train", 2, group="train")
    return "podgroup", "train"


async def it_holds_out_for_a_rack(w):
    w.node("other", **{"gpusched.io/rack": "r1"})
    await runs(w, "busy", spec={"nodeName": "node-0"})
    w.group("train", minMember=2, topology={"preferred": "rack", "maxWait": "10m"})
    w.job("train", 2, group="train")
    return "podgroup", "train"


# -- members --------------------------------------------------------------------------------------


async def members_are_missing(w):
    w.group("train", minMember=4)
    w.job("train", 2, gpus=1, group="train")
    return "podgroup", "train"


async def a_role_is_missing(w):
    w.group("train", minMember=2, minTaskMember={"leader": 1})
    for number in range(2):
        w.pod(f"worker-{number}", gpus=1, labels={GROUP: "train", ROLE: "worker"})
    return "podgroup", "train"


async def members_are_gated(w):
    w.group("train", minMember=2)
    gates = {"schedulingGates": [{"name": "example.com/data"}]}
    w.pod("a", gpus=1, labels={GROUP: "train"})
    w.pod("b", gpus=1, labels={GROUP: "train"}, spec=gates)
    return "podgroup", "train"


async def a_pod_is_gated(w):
    w.pod("early", gpus=1, spec={"schedulingGates": [{"name": "example.com/data"}]})
    return "pod", "early"


async def its_job_has_failed(w):
    w.group("train", minMember=2)
    w.job("train", 2, group="train", backoffLimit=0)
    await w.until(lambda: len(w.running("train")) == 2)
    name = w.pods("train")[0]["metadata"]["name"]
    w.client.patch("pods", "default", name, {"status": {"phase": "Failed"}}, subresource="status")
    return "podgroup", "train"


async def a_sub_group_finds_no_room(w):
    parts = [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}]
    w.group("train", minMember=4, subGroups=parts)
    for number in range(4):
        w.pod(f"p-{number}", labels={GROUP: "train", SUB_GROUP: "ab"[number // 2]})
    return "podgroup", "train"


async def more_is_needed_than_sub_groups_are(w):
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
    w.group("train", minMember=4, subGroups=parts)
    for number in range(4):
        w.pod(f"p-{number}", labels={GROUP: "train", SUB_GROUP: "ab"[number // 2]})
    return "podgroup", "train"


async def a_sub_group_is_unknown(w):
    w.group("train", minMember=1, subGroups=[{"name": "a", "minMember": 1}])
    w.pod("p", gpus=1, labels={GROUP: "train", SUB_GROUP: "c"})
    return "podgroup", "train"


# -- queues ---------------------------------------------------------------------------------------


async def a_queue_does_not_exist(w):
    w.pod("lost", gpus=1, labels={"gpusched.io/queue": "reserch"})
    return "pod", "lost"


async def a_queue_has_queues_below_it(w):
    queue(w, "research")
    queue(w, "vision", parent="research")
    w.pod("high", gpus=1, labels={"gpusched.io/queue": "research"})
    return "pod", "high"


async def a_queue_is_stopped(w):
    queue(w, "team", stopPolicy="Hold")
    w.pod("late", gpus=1, labels={"gpusched.io/queue": "team"})
    return "pod", "late"


async def a_queue_does_not_serve_the_namespace(w):
    queue(w, "team", namespaceSelector={"matchLabels": {"team": "a"}})
    w.pod("stranger", gpus=1, labels={"gpusched.io/queue": "team"})
    return "pod", "stranger"


async def a_queue_may_never_hold_so_much(w):
    queue(w, "team", capability={"nvidia.com/gpu": "8"})
    w.group("train", queue="team", minMember=2)
    w.job("train", 2, group="train")
    return "podgroup", "train"


async def only_what_is_preemptible_may_borrow(w):
    queue(w, "team", deserved={"nvidia.com/gpu": "4"})
    labels = {"gpusched.io/queue": "team"}
    w.pod("firm", labels=labels, annotations={"gpusched.io/preemptible": "false"})
    return "pod", "firm"


async def queues_form_a_cycle(w):
    queue(w, "a", parent="b")
    queue(w, "b", parent="a")
    w.pod("round", gpus=1, labels={"gpusched.io/queue": "a"})
    return "pod", "round"


async def somebody_is_before_it(w):
    queue(w, "team", ordering="StrictFifo")
    w.pod("first", gpus=16, labels={"gpusched.io/queue": "team"})
    await w.clock.sleep(2)
    w.pod("second", gpus=1, labels={"gpusched.io/queue": "team"})
    return "pod", "second"


async def a_queue_holds_all_that_it_may(w):
    queue(w, "team", capability={"nvidia.com/gpu": "8"})
    await runs(w, "busy", labels={"gpusched.io/queue": "team"})
    w.pod("next", labels={"gpusched.io/queue": "team"})
    return "pod", "next"


# -- what authors wrote ---------------------------------------------------------------------------


async def an_annotation_cannot_be_read(w):
    w.pod("odd", gpus=1, annotations={"gpusched.io/min-member": "many"})
    return "pod", "odd"


async def a_key_is_misspelt(w):
    for number in range(2):
        await runs(w, f"busy-{number}")
    w.pod("odd", annotations={"gpusched.io/min-membr": "2"})
    return "pod", "odd"


async def the_scheduler_is_misspelt(w):
    w.pod("odd", gpus=1, spec={"schedulerName": "gpushed"})
    return "pod", "odd"


async def a_suspended_job_names_no_queue(w):
    w.job("nightly", 2, suspend=True)
    return "job", "nightly"


async def a_suspended_job_has_no_room(w):
    for number in range(2):
        await runs(w, f"busy-{number}")
    w.job("nightly", 2, queue="default", suspend=True)
    return "job", "nightly"


async def a_deployment_has_more_replicas_than_room(w):
    await runs(w, "busy-0", spec={"nodeName": "node-0"})
    await runs(w, "busy-1", gpus=5)
    labels = {"app": "serve"}
    w.client.create(
        "deployments.apps",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {**pod_spec(3), "restartPolicy": "Always"},
                },
            },
        },
    )
    return "deployment", "serve"


def reserve(w, name, **spec):
    """A Reservation."""
    head = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Reservation"}
    body = {**head, "metadata": {"name": name}, "spec": spec}
    w.client.create("reservations.scheduling.gpusched.io", body)


async def maintenance_begins_before_it_ends(w):
    reserve(
        w, "firmware", purpose="Maintenance", duration="1h", nodeSelector={"gpusched.io/rack": "r0"},
        **{"from": "2026-01-01T02:00:00Z"},
    )  # fmt: skip
    w.group("train", minMember=1, preemptible=False)
    w.job("train", 1, group="train")
    return "podgroup", "train"


async def a_node_is_kept_for_others_and_none_has_room(w):
    queue(w, "course")
    for number in range(2):
        await runs(w, f"busy-{number}", annotations={"gpusched.io/preemptible": "false"})
    reserve(
        w, "course", queues=["course"], nodeNames=["node-0"], to="2026-01-01T02:00:00Z",
        **{"from": "2026-01-01T00:00:00Z"},
    )  # fmt: skip
    w.group("train", minMember=1)
    w.job("train", 1, group="train")
    return "podgroup", "train"


# -- users and budgets -----------------------------------------------------------------------------


def of_ann(w, name, **spec):
    """A PodGroup that a user made."""
    made = w.group(name, queue="team", minMember=1, **spec)
    notes = {"metadata": {"annotations": {"gpusched.io/user": "ann"}}}
    w.client.patch("podgroups.scheduling.gpusched.io", "default", made["metadata"]["name"], notes)


async def a_user_holds_as_much_as_allowed(w):
    queue(w, "team", userLimits={"perUser": {"resources": {"nvidia.com/gpu": 8}}})
    of_ann(w, "first")
    await runs(w, "first-0", labels={GROUP: "first"})
    of_ann(w, "train")
    w.pod("train-0", labels={GROUP: "train"})
    return "podgroup", "train"


async def a_user_has_as_many_running(w):
    queue(w, "team", userLimits={"perUser": {"maxRunning": 1}})
    of_ann(w, "first")
    await runs(w, "first-0", labels={GROUP: "first"})
    of_ann(w, "train")
    w.pod("train-0", gpus=1, labels={GROUP: "train"})
    return "podgroup", "train"


async def a_budget_is_used(w):
    queue(w, "team", budget={"gpuHours": 0})
    of_ann(w, "train")
    w.pod("train-0", labels={GROUP: "train"})
    return "podgroup", "train"


KINDS = (
    room_is_taken, the_cluster_is_too_small, no_node_is_large_enough, no_node_has_the_resource,
    nodes_lack_several_things, no_gpu_has_room_for_a_share, members_do_not_fit_together,
    a_deployment_has_more_replicas_than_room,
    nodes_are_tainted, nodes_do_not_match_a_selector, nodes_do_not_match_an_affinity,
    nodes_are_cordoned, pods_keep_each_other_away, pods_would_be_spread_unevenly, a_host_port_is_taken,
    a_claim_of_a_volume_is_missing, no_gpu_of_the_product_exists, no_gpu_type_that_it_names_exists,
    a_rack_is_taken, no_rack_is_large_enough, a_level_does_not_exist, it_holds_out_for_a_rack,
    members_are_missing, a_role_is_missing, members_are_gated, a_pod_is_gated, its_job_has_failed,
    a_sub_group_finds_no_room, more_is_needed_than_sub_groups_are, a_sub_group_is_unknown,
    a_queue_does_not_exist, a_queue_has_queues_below_it, queues_form_a_cycle, a_queue_is_stopped,
    a_queue_does_not_serve_the_namespace, a_queue_may_never_hold_so_much, a_queue_holds_all_that_it_may,
    only_what_is_preemptible_may_borrow, somebody_is_before_it,
    an_annotation_cannot_be_read, a_key_is_misspelt, the_scheduler_is_misspelt,
    a_suspended_job_names_no_queue, a_suspended_job_has_no_room,
    maintenance_begins_before_it_ends, a_node_is_kept_for_others_and_none_has_room,
    a_user_holds_as_much_as_allowed, a_user_has_as_many_running, a_budget_is_used,
)  # fmt: skip
"""In the order of the rows; one more row is about a policy that raises, see ``test_policies_told``."""
