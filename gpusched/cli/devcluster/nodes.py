"""``gpusched nodes POOL.yaml``: the nodes of pools as YAML, for KWOK on a real API server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.command import Subparsers
from gpusched.devcluster.controllers.bootstrap.initial_objects import read_documents
from gpusched.devcluster.controllers.nodes.devices.device_entries import read_device_text
from gpusched.devcluster.controllers.nodes.devices.published_slices import classes_of, slices_of
from gpusched.devcluster.stages.node_pools import (
    DEVICES_ANNOTATION,
    KIND,
    nodes_of,
    pool_schema,
)

REPLICAS_MAX = 100_000


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "nodes",
        help="print the nodes of node pools as YAML",
        description="Print the Node objects that NodePools of the embedded cluster stand for, "
        "so that a cluster with KWOK gets the same: gpusched nodes POOL.yaml | kubectl apply -f -",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="YAML with NodePools")
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="so many nodes in each pool, whatever it says"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the nodes of every pool in the files, and what stands for their devices.

    Raises:
        ConfigError: a file cannot be read, a pool cannot be filled, or its devices mean nothing.
    """
    if arguments.replicas is not None and not 0 <= arguments.replicas <= REPLICAS_MAX:
        raise UsageError(f"--replicas takes 0 to {REPLICAS_MAX}, not {arguments.replicas}")
    pools = [pool for file in arguments.files for pool in _pools(file)]
    nodes = [node for pool in pools for node in nodes_of(pool, replicas=arguments.replicas)]
    yaml.dump_all(
        [*nodes, *_published(nodes)], sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False
    )
    return 0


def _published(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Device classes and resource slices of the nodes; there is no driver to publish them."""
    classes: dict[str, dict[str, Any]] = {}
    slices: list[dict[str, Any]] = []
    for node in nodes:
        if text := node["metadata"]["annotations"].get(DEVICES_ANNOTATION):
            entries = read_device_text(text)
            classes |= {made["metadata"]["name"]: made for made in classes_of(entries)}
            slices += slices_of(node["metadata"]["name"], entries)
    return [*classes.values(), *slices]


def _pools(file: Path) -> list[dict[str, Any]]:
    pools = [
        one for one in read_documents(file) if isinstance(one, dict) and one.get("kind") == KIND
    ]
    if not pools:
        raise ConfigError(f"{file} holds no {KIND}")
    schema = pool_schema()
    for pool in pools:
        wrong = schema.decode_error(pool)
        faults = (
            [wrong] if wrong else [f"{each.field}: {each.text}" for each in schema.validate(pool)]
        )
        if faults:
            raise ConfigError(*(f"{file}: a {KIND} cannot be used: {fault}" for fault in faults))
    return pools
