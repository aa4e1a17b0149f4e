"""``gpusched explain podgroup NS/NAME``: why a gang waits, in the daemon's own sentences."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from gpusched.cli.command import Subparsers, add_kubeconfig, add_output, print_json
from gpusched.errors import UsageError

if TYPE_CHECKING:
    from gpusched.cli.story import Evidence
    from gpusched.io.api import Api

_KINDS: Final = ("podgroup", "podgroups", "gpg")
_GROUP_LABELS: Final = ("gpusched.io/pod-group", "scheduling.x-k8s.io/pod-group")
_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
_JOB_LABEL: Final = "batch.kubernetes.io/job-name"
_MEMBERS_ASKED: Final = 3
"""Members whose events are read as well: the others' say the same."""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        description="Say why a gang waits and what it needs, in the daemon's own sentences.",
    )
    parser.add_argument("kind", choices=_KINDS, metavar="KIND", help="podgroup (gpg)")
    parser.add_argument(
        "name",
        metavar="[NS/]NAME",
        help="of a PodGroup, or of the Job or Pod that a gang is derived from",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when NAME has none")
    add_kubeconfig(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Gather what the API shows and tell it.

    Raises:
        UsageError: nothing of that name, or no name at all.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    from gpusched.cli import cluster, story  # noqa: PLC0415 - the HTTP client takes long to import

    namespace, slash, name = arguments.name.rpartition("/")
    if slash and arguments.namespace not in {None, namespace}:
        raise UsageError(f"{arguments.name} is not in the namespace given by -n")
    if not slash:
        namespace = arguments.namespace or cluster.default_namespace(arguments.kubeconfig)
    cluster.checked_name(namespace, what="namespace")
    cluster.checked_name(name, what="pod group")
    evidence = cluster.with_cluster(
        arguments.kubeconfig, lambda api: gather(api, namespace=namespace, name=name)
    )
    if evidence is None:
        raise UsageError(
            f"there is no PodGroup, Job or Pod {name} in namespace {namespace}: "
            "gpusched get podgroups -A lists the groups"
        )
    told = story.account(evidence)
    if arguments.output == "json":
        print_json(told)
    else:
        print(story.tell(told))
    return 0


async def gather(api: Api, *, namespace: str, name: str) -> Evidence | None:
    """Everything the API shows about a gang, None when there is nothing of that name."""
    from gpusched.cli import cluster  # noqa: PLC0415 - as in run
    from gpusched.cli.story import Evidence  # noqa: PLC0415 - as in run
    from gpusched.clock import SystemClock  # noqa: PLC0415 - as in run

    places = (
        ("PodGroup", f"{cluster.GROUP_PATH}/namespaces/{namespace}/podgroups/{name}"),
        ("Job", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"),
        ("Pod", f"/api/v1/namespaces/{namespace}/pods/{name}"),
    )
    for kind, path in places:
        owner = await cluster.get_object(api, path, what=f"{kind} {namespace}/{name}")
        if owner is not None:
            pods = await _members(api, owner, kind=kind, namespace=namespace)
            subjects = [(kind, name)]
            if kind != "Pod":
                names = [str(cluster.at(pod, "metadata", "name")) for pod in pods]
                subjects += [("Pod", member) for member in names[:_MEMBERS_ASKED]]
            return Evidence(
                kind=kind,
                namespace=namespace,
                name=name,
                owner=owner,
                pods=tuple(pods),
                events=tuple(await _events(api, namespace, subjects)),
                now=SystemClock().now(),
            )
    return None


async def _members(
    api: Api, owner: dict[str, Any], *, kind: str, namespace: str
) -> list[dict[str, Any]]:
    from gpusched.cli.cluster import at, list_objects  # noqa: PLC0415 - as in run

    if kind == "Pod":
        return [owner]
    name = str(at(owner, "metadata", "name"))
    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[dict[str, Any]] = []
    for label in _GROUP_LABELS if kind == "PodGroup" else (_JOB_LABEL,):
        query = {"labelSelector": f"{label}={name}"}
        found += await list_objects(api, path, what="pods", query=query)
    if kind == "PodGroup" and not found:
        # The annotation of coscheduling cannot be selected on: look at every pod.
        for pod in await list_objects(api, path, what="pods"):
            annotations = at(pod, "metadata", "annotations")
            if isinstance(annotations, dict) and annotations.get(_GROUP_ANNOTATION) == name:
                found.append(pod)
    by_name = {str(at(pod, "metadata", "name")): pod for pod in found}
    return [by_name[member] for member in sorted(by_name)]


async def _events(
    api: Api, namespace: str, subjects: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    from gpusched.cli.cluster import list_objects  # noqa: PLC0415 - as in run

    path = f"/api/v1/namespaces/{namespace}/events"
    found = []
    for kind, name in subjects:
        query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
        found += await list_objects(api, path, what="events", query=query)
    return found
