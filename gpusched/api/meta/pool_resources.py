"""A resource on the nodes of one pool: what queues limit beside the resource as a whole.

The name of such a dimension is made to be read in sentences, and has blanks, which no resource
name has: it stands beside resources in the same ``Resources`` and meets none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gpusched.api.meta.resources import Resources

_OF_POOL = " of node pool "


def dimension(resource: str, pool: str) -> str:
    """The name of a resource on the nodes of a pool."""
    return f"{resource}{_OF_POOL}{pool}"


@lru_cache(maxsize=4096)
def resource_of(name: str) -> str:
    """The resource of a dimension; a resource itself as it is."""
    return name.partition(_OF_POOL)[0]


@lru_cache(maxsize=4096)
def pool_of(name: str) -> str:
    """The pool of a dimension; empty for a resource."""
    return name.partition(_OF_POOL)[2]


def amounts_by_pool_resource(amounts: Iterable[tuple[str, Resources]]) -> Resources:
    """Pairs of a pool and amounts as amounts by dimension."""
    return Resources.of(
        {
            dimension(resource, pool): amount
            for pool, resources in amounts
            for resource, amount in resources.items
        }
    )


def amounts_of_pool(amounts: Resources, pool: str) -> Resources:
    """The part of amounts by dimension that belongs to one pool, by resource."""
    return Resources(
        tuple(
            (resource_of(name), amount) for name, amount in amounts.items if pool_of(name) == pool
        )
    )
