"""``gpusched get jobs|nodes|queues|podgroups|devices``: what there is, one line each, as kubectl would print it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from gpusched.api.meta.gpu_resources import gpu_resources, gpu_resources_in_force
from gpusched.api.meta.identity import InvalidObject, parse_time
from gpusched.api.meta.quantity import QuantityError, format_quantity, parse_quantity
from gpusched.api.queue.queue import DEFAULT_QUEUE, ROOT_QUEUE
from gpusched.base.clock import SystemClock
from gpusched.base.errors import NotFound, UsageError
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    age,
    clean_cell,
    print_json,
    table,
)
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.devices.device_list import list_pools, render_pools
from gpusched.cli.inspect.devices.device_reader import read_devices
from gpusched.cli.inspect.listing.job_list import list_jobs
from gpusched.cli.inspect.listing.job_table import SORT_KEYS, job_rows, jobs_as_json, sorted_jobs
from gpusched.cli.inspect.listing.node_list import list_nodes, node_as_json, node_rows
from gpusched.cli.inspect.pod_groups import API, ListedGroups, list_groups
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.process_limits import collect_garbage_rarely

_KINDS: Final = {
    "jobs": "jobs", "job": "jobs", "gangs": "jobs", "gang": "jobs",
    "nodes": "nodes", "node": "nodes",
    "queues": "queues", "queue": "queues", "gq": "queues",
    "podgroups": "podgroups", "podgroup": "podgroups", "gpg": "podgroups",
    "devices": "devices", "device": "devices",
}  # fmt: skip


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "get",
        description="List gangs, nodes, queues, pod groups or pools of devices, as kubectl would.",
    )
    parser.add_argument(
        "kind",
        choices=tuple(_KINDS),
        metavar="KIND",
        help="jobs (every gang that waits or runs, whatever made it), nodes, queues (gq), podgroups (gpg) or devices",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("-n", "--namespace", metavar="NS", help="of the jobs or pod groups")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument(
        "--start", action="store_true", help="of jobs those that wait, by when they may start"
    )
    parser.add_argument(
        "--sort-by",
        choices=tuple(SORT_KEYS),
        metavar="ORDER",
        default="name",
        help="how jobs are sorted: name (default), queue, priority, age, gpus or start",
    )
    add_kubeconfig(parser)
    add_config(parser)
    add_output(parser, "json", "wide")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List and print.

    Raises:
        ConfigError: the configuration is wrong.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    with gpu_resources_in_force(cluster_reader.configured_gpu_resources(arguments.config)):
        return _list_and_print(arguments)


def _list_and_print(arguments: argparse.Namespace) -> int:
    kind = _KINDS[arguments.kind]
    if kind != "jobs" and (arguments.start or arguments.sort_by != "name"):
        raise UsageError("--start and --sort-by are for jobs")
    if kind in {"devices", "nodes"}:
        return (_print_devices if kind == "devices" else _print_nodes)(arguments)
    scope = ""
    if kind in {"jobs", "podgroups"} and not arguments.all_namespaces:
        namespace = arguments.namespace or cluster_reader.default_namespace(arguments.kubeconfig)
        scope = f"/namespaces/{cluster_reader.checked_object_name(namespace, what='namespace')}"
    if kind == "jobs":
        return _print_jobs(arguments, scope)

    async def read(api: ApiClient) -> ListedGroups:
        try:
            if kind == "podgroups":
                return await list_groups(api, scope)
            path = f"{cluster_reader.GROUP_PATH}/{kind}"
            found = tuple(await cluster_reader.list_objects(api, path, what=kind))
            return ListedGroups(raw=found, told=_with_built_in_queue(found), refused=())
        except NotFound as error:
            raise NotFound(
                f"{error}; if the cluster does not know gpusched yet: kubectl apply -k manifests/"
            ) from error

    listed = cluster_reader.with_cluster(arguments.kubeconfig, read)
    for refused in listed.refused:
        print(f"gpusched: {refused} are left out: this user may not list them", file=sys.stderr)
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": list(listed.raw)})
        return 0
    _print_table(arguments, kind, scope, listed.told)
    return 0


def _with_built_in_queue(queues: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Queues with ``default``, which jobs without a queue go to whether or not it is an object."""
    if any(cluster_reader.value_at(each, "metadata", "name") == DEFAULT_QUEUE for each in queues):
        return queues
    built_in = {
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"parent": ROOT_QUEUE, "weight": 1},
        "status": {"state": "Open"},
    }
    return (built_in, *queues)


def _print_jobs(arguments: argparse.Namespace, scope: str) -> int:
    collect_garbage_rarely()  # a short life that makes many objects
    now = SystemClock().now()
    config = cluster_reader.configuration(arguments.config)
    listed = cluster_reader.with_cluster(
        arguments.kubeconfig,
        lambda api: list_jobs(api, scope, schedulers=config.scheduler_names, now=now),
    )
    for refused in listed.refused:
        print(
            f"gpusched: {refused} are not looked at: this user may not list them", file=sys.stderr
        )
    jobs = sorted_jobs(listed.jobs, arguments.sort_by, waiting=arguments.start)
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": [jobs_as_json(e) for e in jobs]})
    elif jobs:
        wide = arguments.output == "wide"
        print(table(job_rows(jobs, now, start=arguments.start, wide=wide, everywhere=not scope)))
    else:
        where = f" in namespace {scope.rpartition('/')[2]}" if scope else ""
        what = "Nothing waits" if arguments.start else "Nothing waits or runs"
        print(f"{what}{where} for scheduler {' or '.join(sorted(config.scheduler_names))}.")
    return 0


def _print_nodes(arguments: argparse.Namespace) -> int:
    now = SystemClock().now()
    names = cluster_reader.configuration(arguments.config).scheduler_names
    nodes = cluster_reader.with_cluster(
        arguments.kubeconfig, lambda api: list_nodes(api, schedulers=names, now=now)
    )
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": [node_as_json(e) for e in nodes]})
    elif nodes:
        print(table(node_rows(nodes, now, wide=arguments.output == "wide")))
    else:
        print("There are no nodes.")
    return 0


def _print_devices(arguments: argparse.Namespace) -> int:
    objects = cluster_reader.with_cluster(arguments.kubeconfig, read_devices)
    for refused in objects.refused:
        print(f"gpusched: {refused} are left out: this user may not list them", file=sys.stderr)
    for unreadable in objects.unreadable:
        print(f"gpusched: {unreadable} cannot be read and is left out", file=sys.stderr)
    pools = list_pools(objects)
    if arguments.output == "json":
        print_json(pools)
    elif pools:
        print(render_pools(pools, wide=arguments.output == "wide"))
    else:
        print(
            "There are no devices: no driver publishes a ResourceSlice for a node that takes pods."
        )
    return 0


def _print_table(
    arguments: argparse.Namespace, kind: str, scope: str, items: Sequence[dict[str, Any]]
) -> None:
    if not items:
        where = f" in namespace {scope.rpartition('/')[2]}" if scope else ""
        print(f"There are no {kind}{where}.")
        return
    columns = _QUEUE_COLUMNS if kind == "queues" else _GROUP_COLUMNS
    wanted = [
        (title, cell)
        for title, cell, wide in columns
        if (arguments.output == "wide" or not wide) and (title != "NAMESPACE" or not scope)
    ]
    now = SystemClock().now()
    rows = [[title for title, _ in wanted]]
    rows += [[clean_cell(cell(item, now)) for _, cell in wanted] for item in items]
    print(table(rows))


_Cell = Callable[[dict[str, Any], float], Any]


def _field(*path: str) -> _Cell:
    def cell(item: dict[str, Any], _: float) -> Any:
        value: Any = item
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    return cell


def _gpus(*path: str) -> _Cell:
    """GPUs of all resources in a ResourceList: as it is written where it names one of them."""

    def cell(item: dict[str, Any], now: float) -> Any:
        amounts = _field(*path)(item, now)
        names = gpu_resources().names
        found = [amounts[name] for name in names if name in amounts] if amounts else []
        if len(found) < 2:
            return found[0] if found else None
        try:
            total = sum(parse_quantity(str(text), power=3) for text in found)
        except QuantityError:
            return "<invalid>"
        return format_quantity(total, resource=names[0])

    return cell


def _condition(kind: str, key: str) -> _Cell:
    def cell(item: dict[str, Any], now: float) -> Any:
        conditions = _field("status", "conditions")(item, now)
        for condition in conditions if isinstance(conditions, list) else ():
            if isinstance(condition, dict) and condition.get("type") == kind:
                return condition.get(key)
        return None

    return cell


def _age(item: dict[str, Any], now: float) -> str:
    created = _field("metadata", "creationTimestamp")(item, now)
    try:
        return age(now - parse_time(str(created))) if created else "<unknown>"
    except InvalidObject:
        return "<invalid>"


# Title, cell, and whether only -o wide shows it: the printer columns of the CRDs.
_QUEUE_COLUMNS: Final[tuple[tuple[str, _Cell, bool], ...]] = (
    ("NAME", _field("metadata", "name"), False),
    ("PARENT", _field("spec", "parent"), False),
    ("STATE", _field("status", "state"), False),
    ("WEIGHT", _field("spec", "weight"), False),
    ("RUNNING", _field("status", "running"), False),
    ("INQUEUE", _field("status", "inqueue"), False),
    ("PENDING", _field("status", "pending"), False),
    ("GPUS", _gpus("status", "allocated"), False),
    ("DESERVED", _gpus("spec", "deserved"), False),
    ("AGE", _age, False),
    ("FAIRSHARE", _gpus("status", "fairShare"), True),
    ("BORROWED", _gpus("status", "borrowed"), True),
    ("REQUESTED", _gpus("status", "requested"), True),
    ("LIMIT", _gpus("spec", "capability"), True),
    ("ORDERING", _field("spec", "ordering"), True),
    ("READY", _condition("Ready", "status"), True),
)
_GROUP_COLUMNS: Final[tuple[tuple[str, _Cell, bool], ...]] = (
    ("NAMESPACE", _field("metadata", "namespace"), False),
    ("NAME", _field("metadata", "name"), False),
    ("QUEUE", _field("spec", "queue"), False),
    ("PHASE", _field("status", "phase"), False),
    ("MIN", _field("spec", "minMember"), False),
    ("SCHEDULED", _field("status", "scheduled"), False),
    ("RUNNING", _field("status", "running"), False),
    ("REASON", _condition("Scheduled", "reason"), False),
    ("AGE", _age, False),
    ("POSITION", _field("status", "queuePosition"), True),
    ("ESTIMATE", _field("status", "estimatedStartTime"), True),
    ("API", _field(API), True),
    ("MESSAGE", _condition("Scheduled", "message"), True),
)
