"""``gpusched get jobs|nodes|queues|reservations|priority|history|podgroups|devices|shards``: what there is, one line each, as kubectl would print it."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gpusched import API_VERSION
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.base.clock import SystemClock
from gpusched.base.errors import Denied, NotFound, NotInstalled, UsageError
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
from gpusched.cli.inspect.listing import history_list, history_table, priority_list
from gpusched.cli.inspect.listing.changes import follow
from gpusched.cli.inspect.listing.group_table import group_rows
from gpusched.cli.inspect.listing.label_selector import parse_label_selector
from gpusched.cli.inspect.listing.printed_listing import Listing, print_listing
from gpusched.cli.inspect.listing.shard_list import read_shards
from gpusched.cli.inspect.listing.view_source import SOURCES, ViewSource, gangs_of_daemon
from gpusched.cli.inspect.listing.view_table import (
    SORT_KEYS,
    job_rows,
    node_rows,
    queue_rows,
    sorted_jobs,
)
from gpusched.cli.inspect.pod_groups import API, list_groups, served_kinds
from gpusched.cli.inspect.reservations.reservation_list import (
    list_reservations,
    reservation_rows,
)
from gpusched.config.model import DEFAULT, Config
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.missing_rights import ONLY_ADMINISTRATORS
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.serve.view_client import ViewClient
from gpusched.view.model import GangView, NodeView, QueueView

_KINDS: Final = {
    "jobs": "jobs", "job": "jobs", "gangs": "jobs", "gang": "jobs",
    "nodes": "nodes", "node": "nodes",
    "queues": "queues", "queue": "queues", "gq": "queues",
    "reservations": "reservations", "reservation": "reservations", "gres": "reservations",
    "history": "history",
    "priority": "priority",
    "podgroups": "podgroups", "podgroup": "podgroups", "gpg": "podgroups",
    "devices": "devices", "device": "devices",
    "shards": "shards", "shard": "shards",
}  # fmt: skip
_OF_VIEW: Final = ("jobs", "nodes", "queues")
"""What is read from the view."""
_NO_OBJECTS: Final = {
    "devices": "pools have no labels and no objects",
    "history": "it is over",
    "shards": "they have no labels and no objects",
}
_CRDS: Final = ("queues", "podgroups", "reservations")
_GROUP: Final = API_VERSION.partition("/")[0]
_Part = TypeVar("_Part", GangView, NodeView, QueueView)
_RESOURCES: Final = {"Pod": "pod", "Job": "job.batch"}
"""What ``-o name`` calls gangs by kind; others are called by their kind alone."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "get",
        description="List gangs, nodes, queues, Reservations, pod groups, pools of devices or shards, as kubectl would.",
    )
    parser.add_argument(
        "kind",
        choices=tuple(_KINDS),
        metavar="KIND",
        help="jobs (every gang that waits or runs, whatever made it), nodes, queues (gq), reservations "
        "(gres), priority (where gangs that wait are in the order), history (what became of gangs), podgroups (gpg), devices "
        "or shards (which daemon decides about which part of the cluster)",
    )
    parser.add_argument(
        "about",
        nargs="*",
        metavar="KIND NAME",
        help="of priority: one gang that waits, or KIND/NAME",
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
        choices=tuple(
            dict.fromkeys((*SORT_KEYS, *priority_list.SORT_KEYS, *history_table.SORT_KEYS))
        ),
        metavar="ORDER",
        help="how jobs are sorted: name (default), queue, priority, age, gpus or start; priority: "
        "position (default), name, queue or age; history: "
        "ended (default), started, since, name, queue, evictions or gpu-hours",
    )
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="of jobs, nodes and queues: daemon (what it serves) or api (what its objects say); "
        "default: the daemon where there is one",
    )
    add_config(parser)
    add_output(parser, "json", "yaml", "name", "wide", *history_list.FORMATS)
    add_kubeconfig(parser)
    history_list.add_history_options(parser)
    parser.set_defaults(run=run)


@frozen(kw_only=True)
class Question:
    """What is asked for.

    Attributes:
        kind: ``jobs``, ``nodes``, ``queues``, ``reservations``, ``priority``, ``podgroups``,
            ``devices`` or ``shards``.
        scope: ``/namespaces/NAME``, or empty for all of them.
        schedulers: names of schedulers whose pods are ours.
        source: of what is listed: the daemon's view, or the API.
        about: kind and name of one gang; None for all.
    """

    kind: str
    source: ViewSource
    scope: str = ""
    schedulers: Sequence[str] = tuple(sorted(DEFAULT.scheduler_names))
    selector: str = ""
    sort_by: str = "name"
    start: bool = False
    about: tuple[str, str] | None = None
    wide: bool = False

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
        collect_garbage_rarely()  # a short life that makes many objects

        async def listing(api: ApiClient) -> Listing:
            return await read_listing(api, question)

        async def print_all(api: ApiClient) -> None:
            output, header = arguments.output, not arguments.no_headers
            if arguments.watch:
                collections = await _collections(api, question)
                await follow(api, listing, collections, output=output, header=header)
            print_listing(await listing(api), output, header=header)

        cluster_reader.with_cluster(connection_choice(arguments), print_all)
    return 0


async def read_listing(api: ApiClient, question: Question) -> Listing:
    """What is asked for, as it is now.

    Raises:
        NotInstalled: the cluster does not have the kind.
        NoView: the daemon alone was to be asked, and cannot be.
        Denied: this user may not list it.
    """
    try:
        return await _READERS[question.kind](api, question)
    except NotFound as error:
        kind = question.kind
        if kind not in _CRDS:
            raise
        raise NotInstalled(
            f"this cluster has no {kind}: CustomResourceDefinition {kind}.{_GROUP} is not installed; kubectl "
            f"apply -f manifests/crds/{kind}.yaml installs it, kubectl apply -k manifests/ all of gpusched"
        ) from error


def _question(arguments: argparse.Namespace, config: Config) -> Question:
    kind = _KINDS[arguments.kind]
    if arguments.source == "daemon" and arguments.selector:
        raise UsageError("labels are known to the API alone: leave out --source daemon, or -l")
    parse_label_selector(arguments.selector)
    scope = ""
    if kind in {"jobs", "podgroups", "priority"} and not arguments.all_namespaces:
        choice = connection_choice(arguments)
        namespace = arguments.namespace or cluster_reader.default_namespace(choice)
        scope = f"/namespaces/{cluster_reader.checked_object_name(namespace, what='namespace')}"
    return Question(
        kind=kind,
        scope=scope,
        schedulers=config.scheduler_names,
        selector=arguments.selector,
        sort_by=arguments.sort_by or ("position" if kind == "priority" else "name"),
        about=priority_list.kind_and_name(arguments.about),
        start=arguments.start,
        wide=arguments.output == "wide",
        # the view knows no labels
        source=ViewSource(
            chosen="api" if arguments.selector else arguments.source,
            election=config.leader_election,
        ),
    )


def _refuse_options_of_others(arguments: argparse.Namespace, kind: str) -> None:
    order = arguments.sort_by
    if kind != "jobs" and arguments.start:
        raise UsageError("--start is for jobs")
    if order is not None and kind not in {"jobs", "priority", "history"}:
        raise UsageError("--sort-by is for jobs, priority and history")
    if kind == "priority" and order is not None and order not in priority_list.SORT_KEYS:
        known = ", ".join(priority_list.SORT_KEYS)
        raise UsageError(f"the order is sorted by {known}, not by {order}")
    if kind != "priority" and arguments.about:
        raise UsageError(f"one of {kind} is not listed by its name: gpusched explain KIND NAME")
    if kind not in _OF_VIEW and arguments.source:
        raise UsageError(f"--source is for {', '.join(_OF_VIEW)}")
    if kind == "jobs" and order is not None and order not in SORT_KEYS:
        raise UsageError(f"jobs are sorted by {', '.join(SORT_KEYS)}, not by {order}")
    if kind in {"devices", "history", "shards"} and (
        arguments.selector or arguments.watch or arguments.output == "name"
    ):
        raise UsageError(f"-l, -w and -o name are not for {kind}: {_NO_OBJECTS[kind]}")
    if kind != "history":
        history_list.refuse_history_options(arguments)


async def _read_jobs(api: ApiClient, question: Question) -> Listing:
    now = SystemClock().now()

    async def of_daemon(client: ViewClient) -> tuple[list[GangView], tuple[str, ...]]:
        return await gangs_of_daemon(client, question.scope.rpartition("/")[2]), ()

    async def of_api() -> tuple[list[GangView], tuple[str, ...]]:
        return await _gangs_of_api(api, question, now)

    (gangs, refused), notes = await question.source.read(api, of_daemon=of_daemon, of_api=of_api)
    jobs = sorted_jobs(gangs, question.sort_by, waiting=question.start)
    rows = job_rows(
        jobs, now, start=question.start, wide=question.wide, everywhere=not question.scope
    )
    what = "Nothing waits" if question.start else "Nothing waits or runs"
    return _listing(
        jobs,
        rows,
        resource=lambda job: _RESOURCES.get(job.gang_kind, job.gang_kind.lower()),
        empty=f"{what}{question.where} for scheduler {' or '.join(sorted(question.schedulers))}"
        f"{_selected(question)}.",
        notes=(
            *notes,
            *(f"{each} are not looked at: this user may not list them" for each in refused),
        ),
    )


async def _gangs_of_api(
    api: ApiClient, question: Question, now: float
) -> tuple[list[GangView], tuple[str, ...]]:
    """Gangs as the API alone tells them, and kinds that this user may not list."""
    # As below: two fifths of the modules of this command, where no daemon answers.
    from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
    from gpusched.cli.inspect.listing.view_of_api import gang_frames  # noqa: PLC0415

    found = await read_objects(api, question.scope, schedulers=question.schedulers, now=now)
    frames = gang_frames(found, parse_label_selector(question.selector))
    return [each.view for each in frames], found.refused


async def _read_priority(api: ApiClient, question: Question) -> Listing:
    now, namespace = SystemClock().now(), question.scope.rpartition("/")[2]
    found = await priority_list.read_order(api, question.source.election, namespace, question.about)
    notes: tuple[str, ...] = ()
    if question.selector:  # the view knows no labels
        gangs, refused = await _gangs_of_api(api, question, now)
        keys = {(each.metadata.namespace, each.gang_kind, each.metadata.name) for each in gangs}
        found = priority_list.with_keys(found, keys)
        notes = tuple(f"{each} are not looked at: this user may not list them" for each in refused)
    return priority_list.priority_listing(
        found,
        now,
        sort_by=question.sort_by,
        wide=question.wide,
        everywhere=not question.scope,
        one=question.about is not None,
        resource=lambda kind: _RESOURCES.get(kind, kind.lower()),
        empty=f"Nothing waits{question.where}{_selected(question)}.",
        notes=notes,
    )


async def _read_nodes(api: ApiClient, question: Question) -> Listing:
    now = SystemClock().now()

    async def of_api() -> list[NodeView]:
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import node_frames  # noqa: PLC0415

        found = await read_objects(
            api, "", schedulers=question.schedulers, now=now, nodes=True,
            needed=("nodes", "pods"), selectors={"nodes": question.selector},
        )  # fmt: skip
        return [frame.view for frame in node_frames(found)]

    nodes, notes = await question.source.read(api, of_daemon=ViewClient.nodes, of_api=of_api)
    return _listing(
        nodes,
        node_rows(nodes, now, wide=question.wide),
        resource=lambda _: "node",
        empty=f"There are no nodes{_selected(question)}.",
        notes=notes,
    )


async def _read_queues(api: ApiClient, question: Question) -> Listing:
    now = SystemClock().now()

    async def of_api() -> list[QueueView]:
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import queue_views  # noqa: PLC0415

        found = await read_objects(
            api, "", schedulers=question.schedulers, now=now,
            needed=("queues",), selectors={"queues": question.selector},
        )  # fmt: skip
        return queue_views(found, built_in=not question.selector)

    queues, notes = await question.source.read(api, of_daemon=ViewClient.queues, of_api=of_api)
    return _listing(
        queues,
        queue_rows(queues, now, wide=question.wide),
        resource=lambda _: f"queue.{_GROUP}",
        empty=f"There are no queues{_selected(question)}.",
        notes=notes,
    )


def _listing(
    parts: Sequence[_Part],
    rows: Sequence[Sequence[str]],
    *,
    resource: Callable[[_Part], str],
    empty: str,
    notes: tuple[str, ...],
) -> Listing:
    """Parts of the view in every form.

    Args:
        parts: in their order.
        rows: a header, and a line for each of them.
        resource: what ``-o name`` calls each.
        empty: the sentence where there is none.
        notes: what is to be known about it.
    """
    header, *lines = map(tuple, rows)
    return Listing(
        items=tuple(msgspec.to_builtins(part) for part in parts),
        names=tuple(f"{resource(part)}/{part.metadata.name}" for part in parts),
        header=header,
        lines=tuple(lines),
        empty=empty,
        notes=notes,
    )


def _selected(question: Question) -> str:
    return f" with labels {question.selector[:80]}" if question.selector else ""


async def _read_groups(api: ApiClient, question: Question) -> Listing:
    listed = await list_groups(api, question.scope, selector=question.selector)
    header, *lines = group_rows(
        listed.told, SystemClock().now(), wide=question.wide, everywhere=not question.scope
    )
    return Listing(
        items=listed.told,
        names=tuple(map(_group_name, listed.told)),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty=f"There are no podgroups{question.where}{_selected(question)}.",
        notes=tuple(
            f"{refused} are left out: this user may not list them" for refused in listed.refused
        ),
        document={"apiVersion": "v1", "kind": "List", "items": list(listed.raw)},
    )


def _group_name(item: dict[str, Any]) -> str:
    group = str(item.get(API) or API_VERSION).partition("/")[0]
    return f"podgroup.{group}/{cluster_reader.value_at(item, 'metadata', 'name')}"


async def _read_reservations(api: ApiClient, question: Question) -> Listing:
    items = await list_reservations(api, question.selector)
    header, *lines = reservation_rows(items, SystemClock().now(), wide=question.wide)
    return Listing(
        items=tuple(items),
        names=tuple(
            f"reservation.{_GROUP}/{cluster_reader.value_at(each, 'metadata', 'name')}"
            for each in items
        ),
        header=tuple(header),
        lines=tuple(map(tuple, lines)),
        empty=f"There are no reservations{_selected(question)}.",
        notes=(),
        document={"apiVersion": "v1", "kind": "List", "items": items},
    )


async def _read_pools(api: ApiClient, question: Question) -> Listing:
    objects = await read_devices(api)
    if "ResourceSlice" in objects.refused:  # "none" would be a word about what was not seen
        raise Denied(
            f"could not read resourceslices: this user may not list them; {ONLY_ADMINISTRATORS}",
            status=403,
        )
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


async def _read_shards(api: ApiClient, question: Question) -> Listing:
    return await read_shards(api, question.source.election, SystemClock().now())


_READERS: Final[dict[str, Callable[[ApiClient, Question], Awaitable[Listing]]]] = {
    "jobs": _read_jobs,
    "nodes": _read_nodes,
    "priority": _read_priority,
    "queues": _read_queues,
    "podgroups": _read_groups,
    "reservations": _read_reservations,
    "devices": _read_pools,
    "shards": _read_shards,
}


async def _collections(api: ApiClient, question: Question) -> list[str]:
    """Paths whose objects a listing is made of."""
    if question.kind == "queues":
        return [f"{GROUP_PATH}/queues", "/api/v1/pods"]
    if question.kind == "reservations":
        return [f"{GROUP_PATH}/reservations"]
    if question.kind == "nodes":
        return ["/api/v1/nodes", "/api/v1/pods"]
    groups = [f"{GROUP_PATH}{question.scope}/podgroups"]
    for kind, _, api_version in await served_kinds(api):
        groups.append(f"/apis/{api_version}{question.scope}/{kind.plural}")
    if question.kind == "podgroups":
        return groups
    jobs = [f"/apis/batch/v1{question.scope}/jobs", f"/api/v1{question.scope}/pods"]
    return [*groups, *jobs]
