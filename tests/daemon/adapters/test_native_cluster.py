"""Native gangs on a cluster that serves them as Kubernetes does: its Jobs, finalizers and trees."""

from __future__ import annotations

import pytest

from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.conftest import pod_spec

GROUPS = "podgroups.scheduling.k8s.io"
TREES = "compositepodgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
QUEUES = "queues.scheduling.gpusched.io"
FOR_HOURS = {"gpusched.io/run-for": "10h"}


def make(w, kind, name, spec, version="v1alpha2", **metadata):
    """An object of scheduling.k8s.io in the namespace default."""
    plural = {"PodGroup": GROUPS, "CompositePodGroup": TREES, "Workload": WORKLOADS}[kind]
    return w.client.create(
        plural,
        {
            "apiVersion": f"scheduling.k8s.io/{version}",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": spec,
        },
    )


def gang(count):
    """The gang policy."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


def member(w, group, number, **metadata):
    """A pod of a native group."""
    spec = {"schedulingGroup": {"podGroupName": group}}
    return w.pod(f"{group}-{number}", spec=spec, annotations=FOR_HOURS, **metadata)


def told(w, plural, name):
    """Status, reason and message of each condition of an object by type."""
    status = w.client.get(plural, "default", name).get("status") or {}
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in status.get("conditions", ())
    }


def names(w):
    """Names of the pods with a node."""
    return [pod["metadata"]["name"] for pod in w.bound()]


def job(w, name, count, *, queue="", suspend=False):
    """An Indexed Job, for which the cluster makes a Workload and a group."""
    return w.client.create(
        "jobs.batch",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name, "namespace": "default",
                "labels": {"gpusched.io/queue": queue} if queue else {},
            },
            "spec": {
                "parallelism": count, "completions": count, "completionMode": "Indexed",
                "suspend": suspend,
                "template": {
                    "metadata": {"annotations": FOR_HOURS},
                    "spec": {**pod_spec(8), "restartPolicy": "Never"},
                },
            },
        },
    )  # fmt: skip


def queue(w, name, gpus):
    """A queue that may hold so many GPUs."""
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"capability": {"nvidia.com/gpu": str(gpus)}},
        },
    )


@pytest.mark.parametrize("suspend", [False, True])
def test_a_job_whose_group_the_cluster_made_runs_in_its_queue(play, suspend):
    """Given a queue on the Job alone, its group is charged there, suspended before or not."""

    async def scenario(w):
        await w.start(nodes=4, gangs=all_gates("1.36"))
        queue(w, "team", 16)
        w.daemon()
        job(w, "first", 2, queue="team", suspend=suspend)
        await w.until(lambda: len(w.bound()) == 2)
        (group,) = w.client.list(GROUPS, "default")
        name = group["metadata"]["name"]
        await w.until(lambda: told(w, GROUPS, name).get("PodGroupScheduled", ("",))[0] == "True")
        assert told(w, GROUPS, name)["gpusched.io/Admitted"][2] == "admitted to queue team"
        job(w, "second", 2, queue="team", suspend=suspend)
        await w.clock.sleep(60)
        assert len(w.bound()) == 2  # sixteen GPUs of the queue are taken
        w.client.delete("jobs.batch", "default", "first")
        await w.until(lambda: sum(name.startswith("second") for name in names(w)) == 2, within=120)

    play(scenario)


def test_a_waiting_group_is_deleted_and_made_again(play):
    """Given the finalizer, its pods wait with the reason; under its name it starts anew."""

    async def scenario(w):
        await w.start(nodes=3, gangs=all_gates("1.36"))
        w.daemon()
        make(w, "PodGroup", "a", gang(4))
        for number in range(4):
            member(w, "a", number)
        await w.until(lambda: "PodGroupScheduled" in told(w, GROUPS, "a"))
        w.client.delete(GROUPS, "default", "a")
        await w.until(
            lambda: (
                "is being deleted; it stays until its pods are gone"
                in w.told("a-0").get("message", "")
            )
        )
        with pytest.raises(StatusError):
            make(w, "PodGroup", "a", gang(3))
        assert w.bound() == []
        for number in range(4):
            w.client.delete("pods", "default", f"a-{number}", grace_s=0)

        def gone():
            return not any(
                each["metadata"]["name"] == "a" for each in w.client.list(GROUPS, "default")
            )

        await w.until(gone)
        make(w, "PodGroup", "a", gang(3))
        for number in range(3):
            member(w, "a", number)
        await w.until(lambda: len(w.bound()) == 3)
        await w.until(lambda: told(w, GROUPS, "a").get("PodGroupScheduled", ("",))[0] == "True")

    play(scenario)


def test_both_versions_of_a_release_are_served_and_one_is_read(play):
    """Given v1beta1 and v1alpha3, minCount may change and the later condition is written."""

    async def scenario(w):
        await w.start(nodes=3, gangs=all_gates("1.37"))
        w.daemon()
        make(w, "PodGroup", "a", gang(4), "v1beta1")
        for number in range(4):
            member(w, "a", number)
        await w.until(lambda: "PodGroupInitiallyScheduled" in told(w, GROUPS, "a"))
        w.client.patch(GROUPS, "default", "a", {"spec": gang(3)})
        await w.until(lambda: len(w.bound()) == 3)
        await w.until(lambda: told(w, GROUPS, "a")["PodGroupInitiallyScheduled"][0] == "True")

    play(scenario)


def test_a_tree_of_three_levels_starts_as_one(play):
    """Given a zone for the whole, a rack for each half and pairs in it, all levels hold."""

    async def scenario(w):
        await w.start(nodes=0, gangs=all_gates("1.37"))
        for zone in "xy":
            for rack in "12":
                for number in range(4 if zone == "y" else 3):
                    labels = {"example.com/zone": zone, "example.com/rack": f"{zone}{rack}"}
                    w.node(f"n-{zone}{rack}-{number}", **labels)
        w.daemon()
        policy = {"gang": {"minGroupCount": 2}}
        leaves = [
            {"name": "pair", **gang(2)},
        ]
        middle = {"name": "half", "schedulingPolicy": policy, "podGroupTemplates": leaves}
        root = {"name": "whole", "schedulingPolicy": policy,
                "compositePodGroupTemplates": [middle]}  # fmt: skip
        make(w, "Workload", "w", {"compositePodGroupTemplates": [root]}, "v1beta1")

        def group(kind, name, template, parent="", key="", **more):
            spec = {"workloadRef": {"workloadName": "w", "templateName": template}, **more}
            if parent:
                spec["parentCompositePodGroupName"] = parent
            if key:
                spec["schedulingConstraints"] = {"topology": [{"key": f"example.com/{key}"}]}
            make(w, kind, name, spec, "v1beta1" if kind == "PodGroup" else "v1alpha3")

        group("CompositePodGroup", "root", "whole", key="zone", schedulingPolicy=policy)
        for half in "ab":
            group("CompositePodGroup", half, "half", "root", "rack", schedulingPolicy=policy)
            for pair in "01":
                group("PodGroup", f"{half}{pair}", "pair", half, **gang(2))
        for name in ("a0", "a1", "b0"):
            for number in range(2):
                member(w, name, number)
        await w.clock.sleep(20)
        assert w.bound() == []  # one pair of eight pods is missing
        for number in range(2):
            member(w, "b1", number)
        await w.until(lambda: len(w.bound()) == 8)
        nodes = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"].split("-")[1] for pod in w.bound()
        }
        racks = [{rack for name, rack in nodes.items() if name[0] == half} for half in "ab"]
        assert sorted(map(len, racks)) == [1, 1]
        assert racks[0] != racks[1]
        assert {rack[0] for rack in racks[0] | racks[1]} == {"y"}
        await w.until(
            lambda: (
                told(w, TREES, "a").get("CompositePodGroupInitiallyScheduled", ("",))[0] == "True"
            )
        )
        assert "2 of its groups placed, 2 needed" in told(w, TREES, "a")["gpusched.io/Scheduled"][2]

    play(scenario)
