"""Garbage collection: whose owners count, what holds an owner up, and changes of mind."""

from __future__ import annotations

from typing import Any


def config(cluster: Any, name: str, *owners: Any, namespace: str = "n", **metadata: Any) -> Any:
    """Create a config map that the given objects own."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    return cluster.client.create(
        "configmaps",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "ownerReferences": references,
                **metadata,
            },
        },
    )


def held(cluster: Any, namespace: str = "n") -> list[str]:
    return [found["metadata"]["name"] for found in cluster.client.list("configmaps", namespace)]


def delete(cluster: Any, name: str, propagation: str) -> Any:
    return cluster.client.delete("configmaps", "n", name, propagation=propagation)


async def test_owner_of_another_namespace_owns_nothing(start: Any) -> None:
    """Its dependent goes, and an event on it tells why."""
    cluster = await start()
    cluster.client.create(
        "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "m"}}
    )
    owner = config(cluster, "owner", namespace="m")
    await cluster.clock.advance(1)
    config(cluster, "child", owner)
    await cluster.clock.advance(1)
    assert held(cluster) == []
    [event] = [
        e for e in cluster.client.list("events", "n") if e["reason"] == "OwnerRefInvalidNamespace"
    ]
    uid = owner["metadata"]["uid"]
    assert event["message"] == (
        f'ownerRef [v1/ConfigMap, namespace: n, name: owner, uid: {uid}] does not exist in namespace "n"'
    )
    assert event["source"] == {"component": "garbage-collector-controller"}


async def test_cluster_scoped_owner(start: Any) -> None:
    """A node owns objects of any namespace; they follow it."""
    cluster = await start()
    cluster.node("a")
    config(cluster, "child", cluster.client.get("nodes", None, "a"))
    await cluster.clock.advance(1)
    assert held(cluster) == ["child"]
    cluster.client.delete("nodes", None, "a")
    await cluster.clock.advance(1)
    assert held(cluster) == []


async def test_namespaced_owner_of_a_cluster_scoped_object(start: Any) -> None:
    """Such an owner cannot be: the object stays, whatever becomes of the owner."""
    cluster = await start()
    owner = config(cluster, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    cluster.node("a", ownerReferences=[{**reference, "uid": owner["metadata"]["uid"]}])
    delete(cluster, "owner", "Background")
    await cluster.clock.advance(1)
    assert cluster.client.get("nodes", None, "a") is not None


async def test_recreated_owner_is_another(start: Any) -> None:
    """An owner of the same name but another uid owns nothing of its predecessor's."""
    cluster = await start()
    config(cluster, "child", config(cluster, "owner"))
    delete(cluster, "owner", "Background")
    config(cluster, "owner")
    await cluster.clock.advance(1)
    assert held(cluster) == ["owner"]


async def test_foreground_goes_from_the_leaves_up(start: Any) -> None:
    """An owner stays until what blocks it is gone, over several generations."""
    cluster = await start()
    child = config(cluster, "child", config(cluster, "owner"))
    config(cluster, "grandchild", child, finalizers=["example.com/held"])
    await cluster.clock.advance(1)
    delete(cluster, "owner", "Foreground")
    await cluster.clock.advance(1)
    assert held(cluster) == ["child", "grandchild", "owner"]
    cluster.client.patch("configmaps", "n", "grandchild", {"metadata": {"finalizers": None}})
    await cluster.clock.advance(1)
    assert held(cluster) == []


async def test_circles_do_not_hold_one_another_up(start: Any) -> None:
    """Two objects that own each other both go in the foreground."""
    cluster = await start()
    one = config(cluster, "one")
    two = config(cluster, "two", one)
    reference = {**two["metadata"]["ownerReferences"][0], "name": "two"}
    reference["uid"] = two["metadata"]["uid"]
    cluster.client.patch("configmaps", "n", "one", {"metadata": {"ownerReferences": [reference]}})
    await cluster.clock.advance(1)
    delete(cluster, "one", "Foreground")
    await cluster.clock.advance(2)
    assert held(cluster) == []


async def test_a_second_deletion_may_change_the_way(start: Any) -> None:
    """What waits for its dependents goes at once when it is deleted again in the background."""
    cluster = await start()
    config(cluster, "child", config(cluster, "owner"), finalizers=["example.com/held"])
    await cluster.clock.advance(1)
    delete(cluster, "owner", "Foreground")
    await cluster.clock.advance(1)
    assert held(cluster) == ["child", "owner"]
    delete(cluster, "owner", "Background")
    assert held(cluster) == ["child"]


async def test_one_owner_left_keeps_the_object(start: Any) -> None:
    """References to owners that are gone, or wait in the foreground, are taken off."""
    cluster = await start()
    owners = [config(cluster, name) for name in ("one", "two", "three")]
    config(cluster, "child", *owners)
    await cluster.clock.advance(1)
    delete(cluster, "one", "Background")
    delete(cluster, "two", "Foreground")
    await cluster.clock.advance(1)
    assert held(cluster) == ["child", "three"]
    child = cluster.client.get("configmaps", "n", "child")
    assert [r["name"] for r in child["metadata"]["ownerReferences"]] == ["three"]
