"""Pods whose volumes are claims go where those can be reached, or can be made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusched.api.serializer.codecs import CODECS
from gpusched.io.watch.informers import make_event_handlers
from gpusched.testing.given import Given

ZONE = "topology.kubernetes.io/zone"
WAITS = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "csi.example.com"}


def put(c: Given, plural: str, name: str, *, namespace: str = "", **body: Any) -> Given:
    """An object as the API shows it."""
    meta = {"name": name, "uid": f"{plural}/{name}", "resourceVersion": str(c._next())}
    meta |= {"namespace": namespace} if namespace else {}
    meta |= body.pop("metadata", {})
    item = {"metadata": meta, **body}
    page = {"metadata": {"resourceVersion": "1"}, "items": [item]}
    (entity,) = CODECS[plural].decode_page(json.dumps(page).encode()).items
    make_event_handlers(c.cache, lambda _kind, rejected: pytest.fail(str(rejected)))[plural].apply(
        "ADDED", entity
    )
    return c


def claim(
    c: Given, name: str, *, notes: Any = None, phase: str = "Pending", gib: int = 1, **spec: Any
) -> Given:
    """A claim of some GiB."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{gib}Gi"}},
        **spec,
    }
    if spec.get("volumeName"):
        notes = {"pv.kubernetes.io/bind-completed": "yes", **(notes or {})}
    return put(
        c,
        "persistentvolumeclaims",
        name,
        namespace="default",
        metadata={"annotations": notes or {}},
        spec=spec,
        status={"phase": phase},
    )


def volume(
    c: Given, name: str, *hosts: str, gib: int = 1, labels: Any = None, **spec: Any
) -> Given:
    """A volume that only some hosts reach."""
    match = {"key": "host", "operator": "In", "values": list(hosts)}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": f"{gib}Gi"},
        **({"nodeAffinity": affinity} if hosts else {}),
        **spec,
    }
    metadata = {"labels": labels or {}}
    return put(
        c, "persistentvolumes", name, metadata=metadata, spec=spec, status={"phase": "Available"}
    )


def nodes(c: Given, count: int) -> Given:
    """``h0`` and on, in two zones."""
    for number in range(count):
        c.node(f"h{number}", labels={"host": f"h{number}", ZONE: f"z{number % 2}"})
    return c


def placed(c: Given) -> dict[str, str]:
    """One session's places."""
    c.when.bound()
    return c.then.nodes()


def test_a_bound_volume_says_where(given):
    """Its node affinity is the pod's."""
    c = volume(nodes(given, 3), "v", "h2")
    claim(c, "data", volumeName="v").gang("g", pods=1, claims=["data"])
    assert placed(c) == {"g-0": "h2"}


def test_a_volume_of_a_zone_says_where(given):
    """Zone labels of volumes without node affinity."""
    c = volume(nodes(given, 2), "v", labels={ZONE: "z1"})
    claim(c, "data", volumeName="v").gang("g", pods=1, claims=["data"])
    assert placed(c) == {"g-0": "h1"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "which does not exist"),
        ({}, "which is not bound to a volume yet"),
        ({"volumeName": "gone"}, "which is bound to volume gone, which does not exist"),
        ({"volumeName": "v", "phase": "Lost"}, "which has lost its volume"),
    ],
)
def test_claims_that_no_node_can_help(given, spec, words):
    """The gang waits, and is told which claim and why."""
    c = volume(nodes(given, 1), "v")
    if spec is not None:
        claim(c, "data", **spec)
    c.gang("g", pods=1, claims=["data"])
    assert placed(c) == {}
    assert c.then.why("g") == f"pod g-0 uses the volume claim data, {words}"
    assert c.then.reason("g") == "NoFeasibleNode"


def test_extras_without_a_volume_do_not_stop_the_minimum(given):
    """Only members that are needed count."""
    c = claim(volume(nodes(given, 1), "v"), "data", volumeName="v")
    c.group("g", min_member=1)
    c.pod("a", group="g", claims=["data"])
    c.pod("b", group="g", claims=["missing"])
    assert placed(c) == {"a": "h0"}


def test_a_claim_that_waits_goes_where_its_class_provides(given):
    """``allowedTopologies`` of the class."""
    c = nodes(given, 2)
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
    put(c, "storageclasses", "fast", **WAITS, allowedTopologies=allowed)
    claim(c, "data", storageClassName="fast").gang("g", pods=1, claims=["data"])
    assert placed(c) == {"g-0": "h1"}


def test_a_claim_that_waits_takes_a_volume_that_is_there(given):
    """Local volumes are never made: the pod goes where one is large enough and free."""
    c = nodes(given, 4)
    put(c, "storageclasses", "local", **{**WAITS, "provisioner": "kubernetes.io/no-provisioner"})
    volume(c, "small", "h0", storageClassName="local")
    volume(c, "other", "h1", gib=8)
    theirs = {"namespace": "default", "name": "theirs"}
    volume(c, "taken", "h2", gib=8, storageClassName="local", claimRef=theirs)
    volume(c, "good", "h3", gib=8, storageClassName="local")
    claim(c, "data", gib=4, storageClassName="local").gang("g", pods=1, claims=["data"])
    assert placed(c) == {"g-0": "h3"}


def test_two_claims_need_two_volumes(given):
    """One volume on a host serves one of them."""
    c = nodes(given, 2)
    put(c, "storageclasses", "local", **{**WAITS, "provisioner": "kubernetes.io/no-provisioner"})
    volume(c, "a", "h0", storageClassName="local")
    volume(c, "b", "h1", storageClassName="local")
    volume(c, "c", "h1", storageClassName="local")
    claim(c, "one", storageClassName="local")
    claim(c, "two", storageClassName="local").gang("g", pods=1, claims=["one", "two"])
    assert placed(c) == {"g-0": "h1"}


def test_a_chosen_node_stays_chosen(given):
    """A claim on its way to a node keeps its pod there."""
    c = nodes(given, 3)
    put(c, "storageclasses", "fast", **WAITS)
    notes = {"volume.kubernetes.io/selected-node": "h2"}
    claim(c, "data", storageClassName="fast", notes=notes).gang("g", pods=1, claims=["data"])
    assert placed(c) == {"g-0": "h2"}


def test_members_that_share_a_claim_meet_on_its_node(given):
    """The volume is made for the node of the first."""
    c = nodes(given, 3)
    put(c, "storageclasses", "fast", **WAITS)
    claim(c, "data", storageClassName="fast").gang("g", pods=2, claims=["data"])
    assert len(set(placed(c).values())) == 1


def test_a_claim_for_one_pod_alone(given):
    """Another user of it is in the way, wherever he is."""
    c = volume(nodes(given, 2), "v")
    claim(c, "data", volumeName="v", accessModes=["ReadWriteOncePod"])
    c.gang("g", pods=2, claims=["data"])
    assert placed(c) == {}
    assert "1 fits now" in c.then.why("g")
    assert "2 cannot reach or provide the volumes it claims" in c.then.why("g")
