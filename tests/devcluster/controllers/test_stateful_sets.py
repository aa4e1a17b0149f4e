"""StatefulSets: names that stay, pods in order or all at once, claims, updates, scaling, the end."""

from __future__ import annotations

import pytest

from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.controllers.stateful_sets.revisions import data_hash

SETS = "statefulsets.apps"
CLAIMS = "persistentvolumeclaims"
REVISIONS = "controllerrevisions.apps"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def stateful(cluster, name="web", *, image="i", **spec):
    pods = {"containers": [{"name": "c", "image": image}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "serviceName": "svc",
            "template": {"metadata": {"labels": {"app": name}}, "spec": pods},
            **spec,
        },
    }
    return cluster.client.create(SETS, body)


def names(cluster):
    return [p["metadata"]["name"] for p in cluster.pods()]


async def ready(cluster, *wanted):
    """Let pods run and be ready, and their set see it."""
    for name in wanted:
        state = {"status": {"phase": "Running", "conditions": [READY]}}
        cluster.client.patch("pods", "n", name, state, subresource="status")
    await cluster.clock.advance(1)


def scale(cluster, count, name="web"):
    cluster.client.patch(SETS, "n", name, {"spec": {"replicas": count}})


def status(cluster, name="web"):
    return cluster.client.get(SETS, "n", name)["status"]


async def test_pods_come_one_after_the_other(start):
    """The next one is made when the one before it is ready; all have names and labels of their own."""
    # given
    cluster = await start()
    stateful(cluster, replicas=3)
    await cluster.clock.advance(1)
    assert names(cluster) == ["web-0"]
    # when
    await ready(cluster, "web-0")
    assert names(cluster) == ["web-0", "web-1"]
    await ready(cluster, "web-1")
    await ready(cluster, "web-2")
    # then
    pod = cluster.pods()[2]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-2", "svc")
    labels = pod["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-2"
    assert labels["apps.kubernetes.io/pod-index"] == "2"
    assert labels["controller-revision-hash"] == status(cluster)["currentRevision"]
    assert status(cluster)["readyReplicas"] == status(cluster)["availableReplicas"] == 3


async def test_pods_come_all_at_once_where_they_are_managed_in_parallel(start):
    """None waits for another one, and a set of no pods has none."""
    cluster = await start()
    stateful(cluster, replicas=3, podManagementPolicy="Parallel")
    stateful(cluster, "none", replicas=0)
    await cluster.clock.advance(1)
    assert names(cluster) == ["web-0", "web-1", "web-2"]
    scale(cluster, 1)
    await cluster.clock.advance(1)
    assert names(cluster) == ["web-0"]


async def test_a_lost_pod_comes_back_under_its_name(start):
    """Deleted or ended, it is made again, with the claims that it had."""
    # given two pods with claims
    cluster = await start()
    stateful(cluster, replicas=2, volumeClaimTemplates=[CLAIM])
    await cluster.clock.advance(1)
    await ready(cluster, "web-0")
    await ready(cluster, "web-1")
    first = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.pods()}
    # when one is deleted and the other ends
    cluster.client.delete("pods", "n", "web-1", grace_s=0)
    await cluster.clock.advance(1)
    await ready(cluster, "web-1")
    ended = {"status": {"phase": "Succeeded"}}
    cluster.client.patch("pods", "n", "web-0", ended, subresource="status")
    await cluster.clock.advance(1)
    # then both are other pods by the same names
    now = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.pods()}
    assert now.keys() == first.keys()
    assert not {*now.values()} & {*first.values()}
    claims = [c["metadata"]["name"] for c in cluster.client.list(CLAIMS, "n")]
    assert claims == ["data-web-0", "data-web-1"]
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
    assert cluster.pods()[0]["spec"]["volumes"] == [volume]


async def test_a_shrinking_set_gives_up_its_last_pods_first(start):
    """One at a time, each only when the one before it is gone; its claims stay."""
    # given
    cluster = await start()
    stateful(cluster, replicas=3, volumeClaimTemplates=[CLAIM])
    for number in range(3):
        await cluster.clock.advance(1)
        await ready(cluster, f"web-{number}")
    cluster.client.patch("pods", "n", "web-2", {"metadata": {"finalizers": ["example.com/x"]}})
    # when
    scale(cluster, 1)
    await cluster.clock.advance(1)
    # then the last one holds up the one before it
    assert names(cluster) == ["web-0", "web-1", "web-2"]
    assert ["deletionTimestamp" in p["metadata"] for p in cluster.pods()] == [False, False, True]
    cluster.client.patch("pods", "n", "web-2", {"metadata": {"finalizers": None}})
    await cluster.clock.advance(1)
    assert names(cluster) == ["web-0"]
    assert len(cluster.client.list(CLAIMS, "n")) == 3


@pytest.mark.parametrize(("partition", "renewed"), [(0, ["web-1", "web-0"]), (1, ["web-1"])])
async def test_a_new_template_reaches_pods_from_the_last_one_down(start, partition, renewed):
    """Each waits for the one after it to be ready; those below the partition stay as they are."""
    # given
    cluster = await start()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    stateful(cluster, replicas=2, updateStrategy=rolling)
    await cluster.clock.advance(1)
    await ready(cluster, "web-0")
    await ready(cluster, "web-1")
    # when
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}
    cluster.client.patch(SETS, "n", "web", patch)
    await cluster.clock.advance(1)
    seen = []
    for name in renewed:
        images = {
            p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in cluster.pods()
        }
        seen.append(images)
        await ready(cluster, name)
    # then
    images = [p["spec"]["containers"][0]["image"] for p in cluster.pods()]
    assert images == (["j", "j"] if partition == 0 else ["i", "j"])
    assert seen[0] == {"web-0": "i", "web-1": "j"}
    assert [r["revision"] for r in cluster.client.list(REVISIONS, "n")].count(2) == 1
    state = status(cluster)
    assert (state["currentRevision"] == state["updateRevision"]) is (partition == 0)


async def test_an_update_on_delete_waits_for_the_deletion(start):
    """Pods keep their template until somebody deletes them."""
    cluster = await start()
    stateful(cluster, updateStrategy={"type": "OnDelete"})
    await cluster.clock.advance(1)
    await ready(cluster, "web-0")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}
    cluster.client.patch(SETS, "n", "web", patch)
    await cluster.clock.advance(5)
    assert cluster.pods()[0]["spec"]["containers"][0]["image"] == "i"
    cluster.client.delete("pods", "n", "web-0", grace_s=0)
    await cluster.clock.advance(1)
    assert cluster.pods()[0]["spec"]["containers"][0]["image"] == "j"


async def test_going_back_to_an_old_template_finds_its_revision_again(start):
    """No third revision is made: the first one becomes the newest."""
    cluster = await start()
    stateful(cluster)
    await cluster.clock.advance(1)
    first = status(cluster)["updateRevision"]
    for image in ("j", "i"):
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
        cluster.client.patch(SETS, "n", "web", patch)
        await cluster.clock.advance(1)
    found = {r["metadata"]["name"]: r["revision"] for r in cluster.client.list(REVISIONS, "n")}
    assert (len(found), found[first], status(cluster)["updateRevision"]) == (2, 3, first)


async def test_claims_go_with_the_set_where_it_says_so(start):
    """Owned by the set, they are garbage when it is deleted; else they stay."""
    cluster = await start()
    gone = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    stateful(cluster, "a", volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=gone)
    stateful(cluster, "b", volumeClaimTemplates=[CLAIM])
    await cluster.clock.advance(1)
    for name in ("a", "b"):
        cluster.client.delete(SETS, "n", name)
    await cluster.clock.advance(10)
    assert names(cluster) == []
    assert [c["metadata"]["name"] for c in cluster.client.list(CLAIMS, "n")] == ["data-b-0"]


async def test_a_pod_that_is_refused_is_told_and_tried_again(start):
    """A quota that is full makes an event of the set; room brings the pod."""
    # given a namespace without room
    cluster = await start()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
             "spec": {"hard": {"pods": "0"}}}  # fmt: skip
    cluster.client.create("resourcequotas", quota, "n")
    # when
    stateful(cluster)
    await cluster.clock.advance(5)
    assert "FailedCreate" in cluster.reasons
    assert names(cluster) == []
    # then
    cluster.client.patch("resourcequotas", "n", "q", {"spec": {"hard": {"pods": "5"}}})
    await cluster.clock.advance(60)
    assert names(cluster) == ["web-0"]


async def test_a_pod_by_the_name_of_a_member_is_adopted(start):
    """It stays the pod that it was, and gets the set as its owner."""
    cluster = await start()
    made = cluster.pod("web-0", labels={"app": "web"})
    cluster.pod("other-0", labels={"app": "web"})
    stateful(cluster)
    await cluster.clock.advance(1)
    (member,) = [p for p in cluster.pods() if p["metadata"].get("ownerReferences")]
    assert (member["metadata"]["uid"], len(cluster.pods())) == (made["metadata"]["uid"], 2)


async def test_most_of_a_set_may_not_change(start):
    """What its pods depend on is fixed when it is made."""
    cluster = await start()
    stateful(cluster)
    with pytest.raises(StatusError, match="updates to statefulset spec for fields other than"):
        cluster.client.patch(SETS, "n", "web", {"spec": {"serviceName": "other"}})
    scale(cluster, 2)


def test_names_of_revisions_are_those_of_a_real_controller():
    """Hash of the template's text as kube-controller-manager 1.36.2 computed it."""
    container = {
        "name": "c",
        "image": "i",
        "resources": {},
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "x",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec, "$patch": "replace"}
    assert data_hash({"spec": {"template": template}}, 0) == "95c594b7b"
