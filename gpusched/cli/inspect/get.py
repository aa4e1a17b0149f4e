"""``gpusched get jobs|nodes|queues|history|podgroups|devices``: what there is, one line each, as kubectl would print it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs

from gpusched import API_VERSION
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.queue.queue import DEFAULT_QUEUE, ROOT_QUEUE
from gpusched.base.clock import SystemClock
from gpusched.base.errors import NotFound, UsageError
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    connection_choice,
)
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import GROUP_PATH
from gpusched.cli.inspect.devices.device_list import list_pools, pool_rows
from gpusched.cli.inspect.devices.device_reader import read_devices
from gpusched.cli.inspect.listing import history_list, history_table
from gpusched.cli.inspect.listing.changes import follow
from gpusched.cli.inspect.listing.daemon_jobs import SOURCES, list_jobs_of_daemon
from gpusched.cli.inspect.listing.job_list import ListedJobs, list_jobs
from gpusched.cli.inspect.listing.job_table import SORT_KEYS, job_rows, jobs_as_json, sorted_jobs
from gpusched.cli.inspect.listing.label_selector import parse_label_selector
from gpusched.cli.inspect.listing.node_list import list_nodes, node_as_json, node_rows
from gpusched.cli.inspect.listing.object_table import object_rows
from gpusched.cli.inspect.listing.printed_listing import Listing, print_listing
from gpusched.cli.inspect.pod_groups import API, ListedGroups, list_groups, served_kinds
from gpusched.config.model import Config, LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.serve.view_client import NoView

_KINDS: Final = {
    "jobs": "jobs", "job": "jobs", "gangs": "jobs", "gang": "jobs",
    "nodes": "nodes", "node": "nodes",
    "queues": "queues", "queue": "queues", "gq": "queues",
    "history": "history",
    "podgroups": "podgroups", "podgroup": "podgroups", "gpg": "podgroups",
    "devices": "devices", "device": "devices",
}  # fmt: skip
_RESOURCES: Final = {"Pod": "pod", "Job": "job.batch"}
"""What ``-o name`` calls gangs by kind; others are called by their kind alone."""


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
        help="jobs (every gang that waits or runs, whatever made it), nodes, queues (gq), "
        "history (what became of gangs), podgroups (gpg) or devices",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("-n", "--namespace", metavar="NS", help="of the jobs or pod groups")
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument(
        "-l", "--selector", metavar="SELECTOR", default="",
        help="by labels, as for kubectl; a job has those of its object and of its pods",
    )  # fmt: skip
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print what changes from then on, too"
    )
    parser.add_argument(
        "--no-headers", action="store_true", help="print a table without its titles"
    )
    parser.add_argument(
        "--start", action="store_true", help="of jobs those that wait, by when they may start"
    )
    parser.add_argument(
        "--sort-by",
        choices=tuple(dict.fromkeys((*SORT_KEYS, *history_table.SORT_KEYS))),
        metavar="ORDER",
        help="how jobs are sorted: name (default), queue, priority, age, gpus or start; history: "
        "ended (default), started, since, name, queue, evictions or gpu-hours",
    )
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="of jobs: daemon (what it serves) or api (what its objects say); default: the daemon "
        "where there is one",
    )
    add_config(parser)
    add_output(parser, "json", "yaml", "name", "wide", *history_list.FORMATS)
    add_kubeconfig(parser)
    history_list.add_history_options(parser)
    parser.set_defaults(run=run)


@attrs.frozen(kw_only=True)
class _Question:
    """What is asked for.

    Attributes:
        kind: ``jobs``, ``nodes``, ``queues``, ``podgroups`` or ``devices``.
        scope: ``/namespaces/NAME``, or empty for all of them.
        schedulers: names of schedulers whose pods are ours.
        source: ``daemon`` or ``api``; None for the daemon where there is one.
        election: names the Lease beside which the daemon's view is announced.
    """

    kind: str
    scope: str
    schedulers: Sequence[str]
    selector: str
    sort_by: str
    start: bool
    wide: bool
    source: str | None
    election: LeaderElectionConfig

    @property
    def where(self) -> str:
        """Ends the sentence that there is nothing."""
        return f" in namespace {self.scope.rpartition('/')[2]}" if self.scope else ""


def run(arguments: argparse.Namespace) -> int:
    """List and print.

    Raises:
        ConfigError: the configuration is wrong.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    _refuse_options_of_others(arguments, _KINDS[arguments.kind])
    if _KINDS[arguments.kind] == "history":
        return history_list.print_history(arguments)
    config = cluster_reader.configuration(arguments.config)
    with gpu_resources_in_force(config.gpu_resources):
        question = _question(arguments, config)
        read = _READERS[question.kind]
        collect_garbage_rarely()  # a short life that makes many objects

        async def listing(api: ApiClient) -> Listing:
            return await read(api, question)

        async def print_all(api: ApiClient) -> None:
            output, header = arguments.output, not arguments.no_headers
            if arguments.watch:
                collections = await _collections(api, question)
                await follow(api, listing, collections, output=output, header=header)
            print_listing(await listing(api), output, header=header)

        cluster_reader.with_cluster(connection_choice(arguments), print_all)
    return 0


def _question(arguments: argparse.Namespace, config: Config) -> _Question:
    kind = _KINDS[arguments.kind]
    if arguments.source == "daemon" and arguments.selector:
        raise UsageError("--source is for jobs, and labels are known to the API alone")
    parse_label_selector(arguments.selector)
    scope = ""
    if kind in {"jobs", "podgroups"} and not arguments.all_namespaces:
        choice = connection_choice(arguments)
        namespace = arguments.namespace or cluster_reader.default_namespace(choice)
        scope = f"/namespaces/{cluster_reader.checked_object_name(namespace, what='namespace')}"
    return _Question(
        kind=kind,
        scope=scope,
        schedulers=config.scheduler_names,
        selector=arguments.selector,
        sort_by=arguments.sort_by or "name",
        start=arguments.start,
        wide=arguments.output == "wide",
        source=arguments.source,
        election=config.leader_election,
    )


async def _listed_jobs(
    api: ApiClient, question: _Question, now: float
) -> tuple[ListedJobs, tuple[str, ...]]:
    """Gangs by the daemon's view, else by the API; and what is to be known about that."""
    notes: tuple[str, ...] = ()
    if question.source != "api" and not question.selector:  # the view knows no labels
        try:
            return await list_jobs_of_daemon(api, question.scope, question.election), ()
        except NoView as error:
            if question.source == "daemon":
                raise
            notes = (f"read from the API, not from the daemon: {error}",)
    selector = parse_label_selector(question.selector)
    schedulers = question.schedulers
    listed = await list_jobs(api, question.scope, schedulers=schedulers, now=now, selector=selector)
    return listed, notes


def _refuse_options_of_others(arguments: argparse.Namespace, kind: str) -> None:
    order = arguments.sort_by
    if kind != "jobs" and (arguments.start or (order is not None and kind != "history")):
        raise UsageError("--start is for jobs, --sort-by for jobs and history")
    if kind != "jobs" and arguments.source:
        raise UsageError("--source is for jobs")
    if kind == "jobs" and order is not None and order not in SORT_KEYS:
        raise UsageError(f"jobs are sorted by {', '.join(SORT_KEYS)}, not by {order}")
    if kind in {"devices", "history"} and (
        arguments.selector or arguments.watch or arguments.output == "name"
    ):
        why = "pools have no labels and no objects" if kind == "devices" else "it is over"
        raise UsageError(f"-l, -w and -o name are not for {kind}: {why}")
    if kind != "history":
        history_list.refuse_history_options(arguments)


async def _read_jobs(api: ApiClient, question: _Question) -> Listing:
    now = SystemClock().now()
    listed, notes = await _listed_jobs(api, question, now)
    jobs = sorted_jobs(listed.jobs, question.sort_by, waiting=question.start)
    header, *lines = job_rows(
        jobs, now, start=question.start, wide=question.wide, everywhere=not question.scope
    )
    what = "Nothing waits" if question.start else "Nothing waits or runs"
    return Listing(
        items=tuple(jobs_as_json(job) for job in jobs),
        names=tuple(f"{_RESOURCES.get(job.kind, job.kind.lower())}/{job.name}" for job in jobs),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty=f"{what}{question.where} for scheduler {' or '.join(sorted(question.schedulers))}"
        f"{_selected(question)}.",
        notes=(
            *notes,
            *(
                f"{refused} are not looked at: this user may not list them"
                for refused in listed.refused
            ),
        ),
    )


def _selected(question: _Question) -> str:
    return f" with labels {question.selector[:80]}" if question.selector else ""


async def _read_objects(api: ApiClient, question: _Question) -> Listing:
    kind, query = question.kind, {"labelSelector": question.selector}
    try:
        if kind == "podgroups":
            listed = await list_groups(api, question.scope, selector=question.selector)
        else:
            found = await cluster_reader.list_objects(
                api, f"{GROUP_PATH}/{kind}", what=kind, query=query if question.selector else None
            )
            told = found if question.selector else _with_built_in_queue(found)
            listed = ListedGroups(raw=tuple(found), told=tuple(told), refused=())
    except NotFound as error:
        raise NotFound(
            f"{error}; if the cluster does not know gpusched yet: kubectl apply -k manifests/"
        ) from error
    header, *lines = object_rows(
        kind,
        listed.told,
        SystemClock().now(),
        wide=question.wide,
        everywhere=not question.scope,
    )
    return Listing(
        items=listed.told,
        names=tuple(_object_name(kind, item) for item in listed.told),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty=f"There are no {kind}{question.where}{_selected(question)}.",
        notes=tuple(
            f"{refused} are left out: this user may not list them" for refused in listed.refused
        ),
        document={"apiVersion": "v1", "kind": "List", "items": list(listed.raw)},
    )


def _with_built_in_queue(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queues with ``default``, which jobs without a queue go to whether or not it is an object."""
    if any(cluster_reader.value_at(each, "metadata", "name") == DEFAULT_QUEUE for each in queues):
        return queues
    built_in = {
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"parent": ROOT_QUEUE, "weight": 1},
        "status": {"state": "Open"},
    }
    return [built_in, *queues]


def _object_name(kind: str, item: dict[str, Any]) -> str:
    group = str(item.get(API) or API_VERSION).partition("/")[0]
    return f"{kind.removesuffix('s')}.{group}/{cluster_reader.value_at(item, 'metadata', 'name')}"


async def _read_nodes(api: ApiClient, question: _Question) -> Listing:
    now = SystemClock().now()
    nodes = await list_nodes(
        api, schedulers=question.schedulers, now=now, selector=question.selector
    )
    header, *lines = node_rows(nodes, now, wide=question.wide)
    return Listing(
        items=tuple(node_as_json(node) for node in nodes),
        names=tuple(f"node/{node.name}" for node in nodes),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty=f"There are no nodes{_selected(question)}.",
    )


async def _read_pools(api: ApiClient, question: _Question) -> Listing:
    objects = await read_devices(api)
    notes = [f"{each} are left out: this user may not list them" for each in objects.refused]
    notes += [f"{each} cannot be read and is left out" for each in objects.unreadable]
    pools = list_pools(objects)
    header, *lines = pool_rows(pools, wide=question.wide)
    return Listing(
        items=tuple(pools),
        names=(),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty="There are no devices: no driver publishes a ResourceSlice for a node that takes pods.",
        notes=tuple(notes),
        document=pools,
    )


_READERS: Final[dict[str, Callable[[ApiClient, _Question], Awaitable[Listing]]]] = {
    "jobs": _read_jobs,
    "nodes": _read_nodes,
    "queues": _read_objects,
    "podgroups": _read_objects,
    "devices": _read_pools,
}


async def _collections(api: ApiClient, question: _Question) -> list[str]:
    """Paths whose objects a listing is made of."""
    if question.kind == "queues":
        return [f"{GROUP_PATH}/queues"]
    if question.kind == "nodes":
        return ["/api/v1/nodes", "/api/v1/pods"]
    groups = [f"{GROUP_PATH}{question.scope}/podgroups"]
    for kind, _, api_version in await served_kinds(api):
        groups.append(f"/apis/{api_version}{question.scope}/{kind.plural}")
    if question.kind == "podgroups":
        return groups
    jobs = [f"/apis/batch/v1{question.scope}/jobs", f"/api/v1{question.scope}/pods"]
    return [*groups, *jobs]
