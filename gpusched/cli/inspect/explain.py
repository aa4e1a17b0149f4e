"""``gpusched explain podgroup NS/NAME``: why a gang waits, in the daemon's own sentences."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.base.errors import UsageError
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.cli.inspect.explaining.owners import OWNER_WORDS
from gpusched.cli.inspect.listing.printed_listing import print_notes
from gpusched.cli.inspect.listing.view_source import SOURCES, ViewSource

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


def kinds_of_word(word: str) -> Sequence[str]:
    """Kinds of objects that a user may mean, the first of which counts."""
    return _KINDS[word]


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "explain",
        description="Say why a gang waits and what it needs, in the daemon's own sentences.",
    )
    parser.add_argument("kind", choices=tuple(_KINDS), metavar="KIND",
        help="podgroup (gpg) of any project, compositepodgroup, job, pod, deployment, statefulset, "
        "replicaset, jobset, leaderworkerset (lws), raycluster, workload, a training job such as pytorchjob, "
        "or gang: whatever get jobs lists under the name",
    )  # fmt: skip
    parser.add_argument(
        "name",
        metavar="[NS/]NAME",
        help="of a PodGroup; with podgroup also of the Job or Pod that a gang is derived from",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when NAME has none")
    add_kubeconfig(parser)
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="daemon (what it serves) or api (what its objects say); default: the daemon where there is one",
    )
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Gather what the API shows and tell it.

    Raises:
        ConfigError: the configuration is wrong.
        UsageError: nothing of that name, or no name at all.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    with gpu_resources_in_force(cluster_reader.configured_gpu_resources(arguments.config)):
        return _gather_and_tell(arguments)


def _gather_and_tell(arguments: argparse.Namespace) -> int:
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
    config = cluster_reader.configuration(arguments.config)
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
        print_json(told)
    else:
        print(explanation_text.render_explanation(told))
    return 0
