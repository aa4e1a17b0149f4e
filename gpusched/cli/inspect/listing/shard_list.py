"""Shards as the board and their Leases show them, one line each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.quantity import format_quantity
from gpusched.base import limits
from gpusched.base.errors import GpuschedError, NotFound
from gpusched.cli.command import clean_cell
from gpusched.cli.inspect.cluster_reader import Json
from gpusched.cli.inspect.listing.printed_listing import Listing
from gpusched.config.model import Config, LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.leader.shard_board import board_path
from gpusched.shards.board import KEY, Board, ShardEntry, decode_board
from gpusched.shards.layout import ShardLayout, stray_node_message

_HEADER: Final = ("NAME", "HOLDER", "NODES", "GPUS", "USED", "WAITING", "VERSION", "REMARK")
NO_SHARDS: Final = "There are no shards: one daemon decides about the whole cluster (docs/shards.md says how to divide it)."


async def read_shards(api: ApiClient, election: LeaderElectionConfig, now: float) -> Listing:
    """The shards of a cluster.

    Args:
        api: of the cluster.
        election: where Leases and the board are.
        now: seconds since the epoch.

    Raises:
        Denied: this user may not read the board, or a Lease.
        BoardUnreadable: a later version wrote it.
    """
    try:
        board = await _read_board(api, election)
    except NotFound:
        board = Board()
    items = [
        _shard_item(name, entry, board, await _holder(api, election, name, now))
        for name, entry in sorted(board.shards.items())
    ]
    strays = max((each.strays for each in board.shards.values()), default=0)
    told = next((each.stray_nodes for each in board.shards.values() if each.stray_nodes), [])
    more = strays - len(told)
    return Listing(
        items=tuple(items),
        names=tuple(f"shard/{each['metadata']['name']}" for each in items),
        header=_HEADER,
        lines=tuple(map(_line, items)),
        empty=NO_SHARDS,
        notes=(
            *told,
            *([f"{more} more nodes belong to no shard or to several"] if more > 0 else []),
        ),
    )


async def read_node_notes(api: ApiClient, config: Config, name: str, labels: Json) -> list[str]:
    """What shards make of a node: that it belongs to none or several, or is lent; nothing for whom the board is closed.

    Args:
        api: of the cluster.
        config: its shards count where it has some; else what daemons say of the first few nodes.
        name: of the node.
        labels: of the node.
    """
    try:
        board = await _read_board(api, config.leader_election)
    except GpuschedError:
        board = Board()
    told = [
        each
        for entry in board.shards.values()
        for each in entry.stray_nodes
        if each.startswith(f"node {name} ")
    ][:1]
    if config.shards:
        matching = ShardLayout.from_config(config).matching(labels)
        told = [] if len(matching) == 1 else [stray_node_message(name, matching)]
    lent = board.nodes.get(name)
    return [*told, *([f"node {name} is lent to shard {lent}"] if lent else [])]


async def _read_board(api: ApiClient, election: LeaderElectionConfig) -> Board:
    path = board_path(election)
    found = await _read_object(api, path, "ConfigMap {3}/{5}".format(*path.split("/")[1:]))
    return decode_board(str((found.get("data") or {}).get(KEY) or ""))


async def _read_object(api: ApiClient, path: str, what: str) -> Any:
    answer = await api.request("GET", path, timeout_s=limits.REQUEST_TIMEOUT_S)
    if not answer.ok:
        raise api_error(answer, doing=f"read {what}")
    return json.loads(answer.body)


async def _holder(api: ApiClient, election: LeaderElectionConfig, shard: str, now: float) -> str:
    """Who holds the Lease of a shard; empty for nobody, or for one who has not renewed it in time."""
    name = f"{election.lease_name}-{shard}"
    path = f"/apis/coordination.k8s.io/v1/namespaces/{election.lease_namespace}/leases/{name}"
    try:
        lease = await _read_object(api, path, f"Lease {election.lease_namespace}/{name}")
    except NotFound:
        return ""
    spec = lease.get("spec") or {}
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime"))).astimezone(UTC).timestamp()
    except ValueError:
        renewed = 0.0
    gone = now - renewed > float(spec.get("leaseDurationSeconds") or 0)
    return "" if gone else str(spec.get("holderIdentity") or "")


def _shard_item(name: str, entry: ShardEntry, board: Board, holder: str) -> dict[str, Any]:
    """A shard in the form of ``-o json``."""
    return {
        "metadata": {"name": name},
        "holder": holder,
        "version": entry.version,
        "nodes": entry.nodes,
        "gpus": _gpus(entry.total),
        "gpusUsed": _gpus(entry.used),
        "waitingGangs": entry.waiting,
        "remark": _remark(name, entry, board, holder),
    }


def _gpus(amounts: dict[str, int]) -> str:
    own = {each.name for each in gpu_resources().listed}
    amount = sum(amount for name, amount in amounts.items() if name in own)
    return format_quantity(amount, resource=gpu_resources().listed[0].name)


def _remark(name: str, entry: ShardEntry, board: Board, holder: str) -> str:
    if not holder and entry.layout != board.layout:
        return (
            "no daemon holds it, and the last one had another configuration of shards than those that decide: "
            "where theirs does not name it, it goes within minutes"
        )
    if not holder:
        return "no daemon holds it: it waits for its own, or for one that names it in --shard"
    if entry.layout != board.layout:
        return "its daemon has another configuration of shards, and stands still"
    if entry.wanted:
        return "is being given back to the daemon whose own it is"
    if entry.first != name:
        return f"taken over by the daemon of shard {entry.first}"
    if not entry.settled:
        return "what queues use in it is being counted"
    return _lending_text(name, entry, board)


def _lending_text(name: str, entry: ShardEntry, board: Board) -> str:
    """How many nodes it has of other shards, and how many more it asks for."""
    there = sum(1 for shard in board.nodes.values() if shard == name)
    parts = [f"has {there} nodes of other shards" if there > 1 else "has a node of another shard"]
    parts = parts if there else []
    if entry.wish is not None:
        more = "a node" if entry.wish.nodes == 1 else f"{entry.wish.nodes} nodes"
        parts.append(f"asks other shards for {more} more")
    return ", ".join(parts)


def _line(item: dict[str, Any]) -> tuple[str, ...]:
    holder = str(item["holder"]).partition(":")[2].partition("_")[0]
    cells = (
        item["metadata"]["name"], holder or "-", item["nodes"], item["gpus"], item["gpusUsed"],
        item["waitingGangs"], item["version"], item["remark"],
    )  # fmt: skip
    return tuple(clean_cell(cell) for cell in cells)
