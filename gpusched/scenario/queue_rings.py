"""Queues that are their own parents, directly or by others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusched.scenario.model import Manifest, Place
from gpusched.scenario.population import UNCHECKED, mapping


def queue_rings(manifests: Sequence[Manifest]) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Each ring once: where its first queue by name stands, and names from it back to itself.

    Args:
        manifests: what is there from the beginning; a queue whose annotation says that it is
            unchecked closes no ring.
    """
    places: dict[str, Place] = {}
    parents: dict[str, str] = {}
    for manifest in manifests:
        metadata = mapping(manifest.obj.get("metadata"))
        unchecked = mapping(metadata.get("annotations")).get(UNCHECKED) == "true"
        parent = mapping(manifest.obj.get("spec")).get("parent")
        if manifest.obj.get("kind") == "Queue" and parent and not unchecked:
            places[str(metadata.get("name"))] = manifest.place
            parents[str(metadata.get("name"))] = str(parent)
    for name in sorted(parents):
        ring = [name]
        while (above := parents.get(ring[-1])) is not None and above not in ring:
            ring.append(above)
        if above == name and name == min(ring):
            yield places[name], (*ring, name)
