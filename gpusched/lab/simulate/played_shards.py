"""What is said of shards that are played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpusched.config.model import Config
from gpusched.shards.layout import ShardLayout, stray_node_message


def shards_notes(config: Config, objects: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """How the shards of a configuration are played, and which nodes get nothing; none without shards.

    Args:
        config: of the daemons.
        objects: of the cluster.
    """
    if not config.shards:
        return ()
    layout = ShardLayout.from_config(config)
    nodes = [each["metadata"] for each in objects if each.get("kind") == "Node"]
    strays = [
        stray_node_message(node["name"], matching)
        for node in nodes
        if len(matching := layout.matching(node.get("labels") or {})) != 1
    ]
    more = f" ({len(strays) - 1:,} more do as well)" if len(strays) > 1 else ""
    return (
        f"a daemon for each shard ({', '.join(layout.names)}) is played",
        *(f"{stray}{more}" for stray in strays[:1]),
    )
