"""A terminating namespace says what keeps it."""

from __future__ import annotations

from typing import Any


async def test_a_namespace_names_what_remains(start: Any) -> None:
    """Objects and their finalizers are counted in its conditions until they are gone."""
    cluster = await start()
    cluster.pod("p", finalizers=["example.com/hold"])
    cluster.client.delete("namespaces", None, "n")
    await cluster.clock.advance(3)
    found = {
        c["type"]: c for c in cluster.client.get("namespaces", None, "n")["status"]["conditions"]
    }
    assert found["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: pods. has 1 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: "
        "example.com/hold in 1 resource instances"
    )
    cluster.client.patch("pods", "n", "p", {"metadata": {"finalizers": None}})
    await cluster.clock.advance(3)
    assert cluster.client.get("namespaces", None, "n") is None
