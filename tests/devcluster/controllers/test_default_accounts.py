"""The service account that every namespace has."""

from __future__ import annotations

from typing import Any


async def test_every_namespace_has_its_account(start: Any) -> None:
    """The first ones, later ones, and again after a deletion."""
    cluster = await start()
    await cluster.clock.settle()
    homes = {a["metadata"]["namespace"] for a in cluster.client.list("serviceaccounts")}
    assert homes == {n["metadata"]["name"] for n in cluster.client.list("namespaces")}
    first = cluster.client.get("serviceaccounts", "n", "default")
    cluster.client.delete("serviceaccounts", "n", "default")
    await cluster.clock.settle()
    second = cluster.client.get("serviceaccounts", "n", "default")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_namespace_on_its_way_out_gets_none(start: Any) -> None:
    """The account is deleted with everything else, and not made anew."""
    cluster = await start()
    await cluster.clock.settle()
    cluster.client.delete("namespaces", None, "n")
    await cluster.clock.advance(5)
    assert cluster.client.get("namespaces", None, "n") is None
    assert cluster.client.list("serviceaccounts", "n") == []
