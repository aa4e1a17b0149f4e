"""``gpusched explain podgroup NS/NAME``: why a gang waits, in the daemon's own sentences."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ApiError, UsageError
from gpusched.cli.act.named_objects import WantedObject
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.ask.advice_text import what_would_help
from gpusched.cli.inspect.ask.ask_daemon import ask_advice
from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.explanation import GangObjects
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.cli.inspect.explaining.node_story import describe_node, render_node
from gpusched.cli.inspect.explaining.owners import OWNER_WORDS
from gpusched.cli.inspect.explaining.queue_story import describe_queue, render_queue
from gpusched.cli.inspect.listing.printed_listing import print_notes
from gpusched.cli.inspect.listing.shard_list import read_node_notes
from gpusched.cli.inspect.listing.view_source import SOURCES, ViewSource
from gpusched.cli.inspect.reservations.reservation_story import (
    describe_reservation,
    render_reservation,
)
from gpusched.config.model import DEFAULT, Config
from gpusched.config.yaml_tree import did_you_mean, quoted
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView, ViewClient
from gpusched.view.model import WAITING
from gpusched.view.over_time.advice_view import AdviceView

_KINDS: Final = {
    **dict.fromkeys(
        ("podgroup", "podgroups", "gpg", "gang", "gangs"), ("PodGroup", COMPOSITE, "Job", "Pod")
    ),
    **dict.fromkeys(("compositepodgroup", "compositepodgroups"), (COMPOSITE,)),
    **dict.fromkeys(("job", "jobs"), ("Job",)),
    **dict.fromkeys(("pod", "pods", "po"), ("Pod",)),
    **{word: (kind,) for word, kind in OWNER_WORDS.items()},
    **{kind.lower(): (kind,) for kind in sorted(WITHOUT_OBJECT)},
}
"""Kinds of objects that have the name, the first of which counts, by the word of the user."""
_CLUSTER_WIDE: Final = {
    **dict.fromkeys(("queue", "queues", "gq"), "queue"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("reservation", "reservations", "gres"), "reservation"),
}
Story = dict[str, Any]
"""What is told, as JSON."""
StoryReader = Callable[
    [ApiClient, str, ViewSource, Config], Awaitable[tuple[Story | None, tuple[str, ...]]]
]


def kinds_of_word(word: str) -> Sequence[str]:
    """Kinds of objects that a user may mean, the first of which counts."""
    return _KINDS[word]


def kind_words() -> list[str]:
    """Everything that a user may call a kind."""
    return [*_KINDS, *_CLUSTER_WIDE]


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "explain",
        description="Say why a gang waits and what it needs, in the daemon's own sentences; what a queue "
        "holds and is due, who holds the GPUs of a node, and what is in the way of a Reservation.",
    )
    parser.add_argument("kind", metavar="KIND",
        help="queue, node, reservation, podgroup (gpg) of any project, compositepodgroup, job, pod, deployment, statefulset, "
        "replicaset, jobset, leaderworkerset (lws), raycluster, workload, a training job such as pytorchjob, "
        "or gang: whatever get jobs lists under the name",
    )  # fmt: skip
    parser.add_argument(
        "name",
        nargs="?",
        metavar="[NS/]NAME",
        help="with podgroup also of the Job or Pod that a gang is derived from; KIND/NAME is one word",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when NAME has none")
    add_kubeconfig(parser)
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="daemon (what it serves) or api (what its objects say); default: the daemon where there is one",
    )
    parser.add_argument(
        "--advice",
        action=argparse.BooleanOptionalAction,
        help="whether to tell what would let a gang start that waits (default: where a daemon answers; "
        "not with -o json)",
    )
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Gather what is known and tell it.

    Raises:
        ConfigError: the configuration is wrong.
        UsageError: nothing of that name, or no name at all.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    _split_kind_and_name(arguments)
    config = cluster_reader.configuration(arguments.config)
    with gpu_resources_in_force(config.gpu_resources):
        if arguments.kind in _CLUSTER_WIDE:
            return _tell_cluster_wide(arguments, config)
        return _tell_gang(arguments, config)


def _split_kind_and_name(arguments: argparse.Namespace) -> None:
    """``KIND NAME`` and ``KIND/NAME`` are the same, as for kubectl."""
    if arguments.name is None and "/" in arguments.kind:
        arguments.kind, _, arguments.name = arguments.kind.partition("/")
    known = kind_words()
    if arguments.kind not in known:
        raise UsageError(
            f"unknown kind {quoted(arguments.kind)}: known are {', '.join(known)}"
            f"{did_you_mean(arguments.kind, known)}"
        )
    if arguments.name is None:
        raise UsageError(f"name what is to be explained: gpusched explain {arguments.kind} NAME")


def _tell_cluster_wide(arguments: argparse.Namespace, config: Config) -> int:
    kind, name = _CLUSTER_WIDE[arguments.kind], arguments.name
    cluster_reader.checked_object_name(name, what=kind)
    if arguments.namespace:
        raise UsageError(f"a {kind} is in no namespace: leave out -n")
    source = ViewSource(chosen=arguments.source, election=config.leader_election)
    now = SystemClock().now()
    read, render = _STORIES[kind]

    async def read_story(api: ApiClient) -> tuple[Story | None, tuple[str, ...]]:
        return await read(api, name, source, config)

    story, notes = cluster_reader.with_cluster(connection_choice(arguments), read_story)
    if story is None:
        raise UsageError(f"there is no {kind} {name}: gpusched get {kind}s lists them")
    print_notes(notes)
    if arguments.output == "json":
        print_json(story)
    else:
        print(render(story, now))
    return 0


async def read_queue_story(
    api: ApiClient, name: str, source: ViewSource, config: Config = DEFAULT
) -> tuple[Story | None, tuple[str, ...]]:
    """A queue as ``queue_story`` tells it, None for none of the name; and notes on where it was read."""

    async def of_daemon(client: ViewClient) -> Story | None:
        return describe_queue(name, await client.queues(), await client.gangs(queue=name))

    async def of_api() -> Story | None:
        # As below: a third of the modules of this command, where no daemon answers.
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import gang_frames, queue_views  # noqa: PLC0415

        found = await read_objects(
            api, "", schedulers=config.scheduler_names, now=SystemClock().now(), needed=("queues",)
        )
        return describe_queue(name, queue_views(found), [e.view for e in gang_frames(found)])

    return await source.read(api, of_daemon=of_daemon, of_api=of_api)


async def read_node_story(
    api: ApiClient, name: str, source: ViewSource, config: Config = DEFAULT
) -> tuple[Story | None, tuple[str, ...]]:
    """A node as ``node_story`` tells it, None for none of the name; and notes on where it was read."""
    item = await cluster_reader.get_object(api, f"/api/v1/nodes/{name}", what=f"node {name}")

    async def of_daemon(client: ViewClient) -> Story | None:
        return describe_node(name, await client.nodes(), await client.gangs(), item)

    async def of_api() -> Story | None:
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import gang_frames, node_frames  # noqa: PLC0415

        found = await read_objects(
            api, "", schedulers=config.scheduler_names, now=SystemClock().now(), nodes=True,
            needed=("nodes", "pods"),
        )  # fmt: skip
        nodes = [frame.view for frame in node_frames(found)]
        return describe_node(name, nodes, [frame.view for frame in gang_frames(found)], item)

    story, notes = await source.read(api, of_daemon=of_daemon, of_api=of_api)
    labels = cluster_reader.value_at(item, "metadata", "labels") or {}
    return story, (*notes, *await read_node_notes(api, config, name, labels))


async def read_reservation_story(
    api: ApiClient, name: str, source: ViewSource, config: Config = DEFAULT
) -> tuple[Story | None, tuple[str, ...]]:
    """A Reservation as ``reservation_story`` tells it, None for none of the name; and notes on where it was read."""
    path = f"{cluster_reader.GROUP_PATH}/reservations/{name}"
    item = await cluster_reader.get_object(api, path, what=f"reservation {name}")
    if item is None:
        return None, ()

    async def of_daemon(client: ViewClient) -> Story | None:
        return describe_reservation(item, await client.gangs())

    async def of_api() -> Story | None:
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import gang_frames  # noqa: PLC0415

        found = await read_objects(
            api, "", schedulers=config.scheduler_names, now=SystemClock().now(), needed=("pods",)
        )
        return describe_reservation(item, [frame.view for frame in gang_frames(found)])

    return await source.read(api, of_daemon=of_daemon, of_api=of_api)


_STORIES: Final[dict[str, tuple[StoryReader, Callable[[Story, float], str]]]] = {
    "queue": (read_queue_story, render_queue),
    "node": (read_node_story, render_node),
    "reservation": (read_reservation_story, render_reservation),
}
"""How what is in no namespace is read and rendered, by kind."""


def _tell_gang(arguments: argparse.Namespace, config: Config) -> int:
    namespace, slash, name = arguments.name.rpartition("/")
    if slash and arguments.namespace not in {None, namespace}:
        raise UsageError(f"{arguments.name} is not in the namespace given by -n")
    if not slash:
        namespace = arguments.namespace or cluster_reader.default_namespace(
            connection_choice(arguments)
        )
    cluster_reader.checked_object_name(namespace, what="namespace")
    kinds = kinds_of_word(arguments.kind)
    cluster_reader.checked_object_name(name, what="pod group" if len(kinds) > 1 else kinds[0])
    source = ViewSource(chosen=arguments.source, election=config.leader_election)
    evidence = cluster_reader.with_cluster(
        connection_choice(arguments),
        lambda api: gather_objects(
            api, namespace=namespace, name=name, kinds=kinds, source=source, config=config
        ),
    )
    if evidence is None:
        what = kinds[0] if len(kinds) == 1 else "PodGroup, Job or Pod"
        raise UsageError(
            f"there is no {what} {name} in namespace {namespace}: "
            "gpusched get jobs -A lists what waits and runs"
        )
    print_notes(evidence.notes)
    told = explanation.explain_gang(evidence)
    if arguments.output == "json":
        advice = _advice(arguments, config, evidence) if arguments.advice else None
        print_json(told if advice is None else {**told, "advice": msgspec.to_builtins(advice)})
        return 0
    print(explanation_text.render_explanation(told), flush=True)
    if arguments.advice is not False:
        for line in what_would_help(_advice(arguments, config, evidence)):
            print(line)
    return 0


def _advice(
    arguments: argparse.Namespace, config: Config, evidence: GangObjects
) -> AdviceView | None:
    """What would let the gang start; None where it does not wait, or where no daemon answers."""
    waiting = [gang for gang in evidence.gangs if gang.state == WAITING]
    if len(waiting) != 1 or (evidence.notes and arguments.advice is None):
        return None
    gang = waiting[0]
    wanted = WantedObject(gang.gang_kind.lower(), gang.metadata.namespace, gang.metadata.name)
    choice = connection_choice(arguments)
    source = ViewSource(chosen=arguments.source, election=config.leader_election)
    try:
        advice, notes = cluster_reader.with_cluster(
            choice, lambda api: ask_advice(api, source, wanted)
        )
    except (NoView, ApiError) as error:
        print_notes((f"what would help is not known: {error}",))
        return None
    if not advice and arguments.advice:
        asked = f"gpusched advise {wanted.word} {wanted.name} -n {wanted.namespace}"
        print_notes((*notes, f"no daemon answers what would help: {asked} decides it here"))
    return advice
