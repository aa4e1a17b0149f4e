"""The cluster that a question is about: a file, or the live one, read once."""

from __future__ import annotations

import argparse
import json
from typing import Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError, Denied, GpuschedError
from gpusched.cli.command import connection_choice
from gpusched.cli.inspect.cluster_reader import configuration, value_at, with_cluster
from gpusched.cli.inspect.listing.printed_listing import print_notes
from gpusched.config.model import LeaderElectionConfig
from gpusched.engine.objects import Obj
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.shard_board import find_board
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.recordings.snapshot_file import MissingKind, SnapshotFile, read_snapshot
from gpusched.io.recordings.snapshot_reader import take_snapshot
from gpusched.shards.board import Board

_NEEDED: Final = frozenset(
    {"pods", "nodes", "queues.scheduling.gpusched.io", "podgroups.scheduling.gpusched.io"}
)
"""Kinds without which every answer would be about another cluster."""


@frozen
class RecordedCluster:
    """Objects of one moment.

    Attributes:
        objects: in an order in which they can be applied.
        taken_at: seconds since the Unix epoch.
        in_shards: whether several daemons divide the cluster.
        board: of these daemons; None where it cannot be read.
    """

    objects: tuple[Obj, ...]
    taken_at: float
    in_shards: bool = False
    board: Board | None = None


@frozen
class ReadFile:
    """A cluster as the file of a snapshot, which may have been read just now.

    Attributes:
        file: that has its objects.
        in_shards, board: as of ``RecordedCluster``.
    """

    file: SnapshotFile
    in_shards: bool
    board: Board | None


def read_cluster(arguments: argparse.Namespace) -> RecordedCluster:
    """The cluster that the options ``--snapshot`` and those of connections choose.

    Raises:
        ConfigError: the file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    collect_garbage_rarely()  # a short life that makes many objects
    read = read_file(arguments)
    file = read.file
    missing = [each for each in file.missing if each.served]
    for each in missing:
        if each.resource in _NEEDED:
            raise _undecidable(each, arguments.snapshot)
    print_notes([f"{each.resource} are left out: {each.why}" for each in missing])
    return RecordedCluster(tuple(file), file.taken_at, read.in_shards, read.board)


def _undecidable(kind: MissingKind, file: str | None) -> GpuschedError:
    """That an answer without a kind would be wrong."""
    if file:
        return ConfigError(f"{file}: nothing can be decided without {kind.resource}: {kind.why}")
    return Denied(
        f"nothing can be decided without {kind.resource}: {kind.why}; a daemon that serves its view "
        "answers with what you may see (--source daemon)",
        status=403,
    )


def read_file(arguments: argparse.Namespace) -> ReadFile:
    """The same as the file of a snapshot."""
    config = configuration(arguments.config)
    if arguments.snapshot:
        file, board = read_snapshot(arguments.snapshot), None
    else:
        file, board = with_cluster(
            connection_choice(arguments), lambda api: record_cluster(api, config.leader_election)
        )
    in_shards = board is not None or bool(config.shards) or _tells_shards(file)
    return ReadFile(file, in_shards, board)


def _tells_shards(file: SnapshotFile) -> bool:
    """Whether the status of some queue has parts by shard, which who may not read the board sees, too."""
    queues = file.objects.get("queues.scheduling.gpusched.io", ())
    return any(value_at(queue, "status", "shards") for queue in queues)


async def record_cluster(
    api: ApiClient, election: LeaderElectionConfig
) -> tuple[SnapshotFile, Board | None]:
    """The cluster now, and the board of the daemons that divide it, if any do."""
    board = await find_board(api, election)
    recording = await take_snapshot(api, now=SystemClock().now())
    objects = {
        name: tuple(json.loads(line) for line in lines) for name, lines in recording.lines.items()
    }
    return attrs.evolve(recording.header, objects=objects), board
