"""``gpusched explain podgroup NS/NAME``: why a gang waits, in the daemon's own sentences."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.command import Subparsers, add_config, add_kubeconfig, add_output, print_json
from gpusched.cli.inspect import cluster_reader, explanation
from gpusched.cli.inspect.cluster_reader import list_objects, value_at
from gpusched.cli.inspect.devices.device_reader import has_claims, read_devices
from gpusched.cli.inspect.devices.device_story import describe_claims
from gpusched.cli.inspect.explanation import GangObjects
from gpusched.cli.inspect.group_tree import describe_tree, leaves_below, read_groups, tree_of
from gpusched.cli.inspect.pod_groups import API, JOB_LABEL, find_group, group_of_pod
from gpusched.io.client.api_client import ApiClient

_KINDS: Final = {
    **dict.fromkeys(("podgroup", "podgroups", "gpg"), ("PodGroup", COMPOSITE, "Job", "Pod")),
    **dict.fromkeys(("compositepodgroup", "compositepodgroups"), (COMPOSITE,)),
    **dict.fromkeys(("job", "jobs"), ("Job",)),
    **dict.fromkeys(("pod", "pods", "po"), ("Pod",)),
}
"""Kinds of objects that have the name, the first of which counts, by the word of the user."""
_GROUP_LABELS: Final = ("gpusched.io/pod-group", "scheduling.x-k8s.io/pod-group")
_KUBERNETES: Final = "scheduling.k8s.io/"
_PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    "Pod": "/api/v1/namespaces/{namespace}/pods/{name}",
}
_MEMBERS_ASKED: Final = 3
"""Members whose events are read as well: the others' say the same."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "explain",
        description="Say why a gang waits and what it needs, in the daemon's own sentences.",
    )
    parser.add_argument("kind", choices=tuple(_KINDS), metavar="KIND",
        help="podgroup (gpg) of any project, compositepodgroup, job or pod",
    )  # fmt: skip
    parser.add_argument(
        "name",
        metavar="[NS/]NAME",
        help="of a PodGroup; with podgroup also of the Job or Pod that a gang is derived from",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when NAME has none")
    add_kubeconfig(parser)
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
        namespace = arguments.namespace or cluster_reader.default_namespace(arguments.kubeconfig)
    cluster_reader.checked_object_name(namespace, what="namespace")
    kinds = _KINDS[arguments.kind]
    cluster_reader.checked_object_name(name, what="pod group")
    evidence = cluster_reader.with_cluster(
        arguments.kubeconfig,
        lambda api: gather(api, namespace=namespace, name=name, kinds=kinds),
    )
    served = cluster_reader.configuration(arguments.config).scheduler_names
    if evidence is None:
        what = kinds[0] if len(kinds) == 1 else "PodGroup, Job or Pod"
        raise UsageError(
            f"there is no {what} {name} in namespace {namespace}: "
            "gpusched get podgroups -A lists the groups"
        )
    told = explanation.explain_gang(attrs.evolve(evidence, served=tuple(sorted(served))))
    if arguments.output == "json":
        print_json(told)
    else:
        print(explanation.render_explanation(told))
    return 0


async def gather(
    api: ApiClient, *, namespace: str, name: str, kinds: Sequence[str] = _KINDS["podgroup"]
) -> GangObjects | None:
    """Everything the API shows about a gang, None when there is nothing of that name.

    A pod or Job that belongs to a PodGroup is explained as that: it starts when its gang does.

    Args:
        api: of the cluster.
        namespace: of the object that is asked about.
        name: of the same.
        kinds: that it may be of; the first that has the name counts.
    """
    found = await _find(api, namespace, name, kinds=kinds)
    if found is None:
        return None
    kind, owner = found
    asked = owner if kind == "Pod" else None
    pods = await _members(api, owner, kind=kind, namespace=namespace)
    tree: list[dict[str, Any]] = []
    groups = {group_of_pod(pod) for pod in pods} - {""} if kind in {"Job", "Pod"} else set()
    if len(groups) == 1 and (kind, group := groups.pop()) != ("Job", name):
        above = await _find(api, namespace, group, kinds=("PodGroup", "Job"))
        if above is not None:
            name = group
            kind, owner = above
            pods = await _members(api, owner, kind=kind, namespace=namespace)
    if kind in {"PodGroup", COMPOSITE} and str(owner.get(API)).startswith(_KUBERNETES):
        every = await read_groups(api, namespace)
        found_tree = tree_of(every, kind, name)
        if found_tree:
            path = f"/api/v1/namespaces/{namespace}/pods"
            all_pods = await list_objects(api, path, what="pods")
            tree = describe_tree(found_tree, all_pods, group_of_pod)
            if kind == COMPOSITE:
                below = leaves_below(every, name)
                pods = _by_name(pod for pod in all_pods if group_of_pod(pod) in below)
    if asked is not None and value_at(asked, "metadata", "uid") not in {
        value_at(pod, "metadata", "uid") for pod in pods
    }:
        pods = [asked, *pods]  # it names its gang in another way than the others
    subjects = [(kind, name)]
    if kind != "Pod":
        names = [str(value_at(pod, "metadata", "name")) for pod in pods]
        subjects += [("Pod", member) for member in names[:_MEMBERS_ASKED]]
    claimants = [pod for pod in pods if has_claims(pod)]
    claims = []
    if claimants:
        claims = describe_claims(claimants, await read_devices(api, namespace))
    return GangObjects(
        claims=tuple(claims),
        kind=kind,
        namespace=namespace,
        name=name,
        owner=owner,
        pods=tuple(pods),
        events=tuple(await _events(api, namespace, subjects)),
        tree=tuple(tree),
        now=SystemClock().now(),
    )


async def _find(
    api: ApiClient, namespace: str, name: str, *, kinds: Sequence[str]
) -> tuple[str, dict[str, Any]] | None:
    """The first of the kinds that has an object of the name, with the object."""
    if not cluster_reader.is_name(name):
        return None
    group = await find_group(api, namespace, name, kinds=kinds)
    if group is not None:
        return group
    for kind in kinds:
        if kind not in _PATHS:
            continue
        path = _PATHS[kind].format(namespace=namespace, name=name)
        owner = await cluster_reader.get_object(api, path, what=f"{kind} {namespace}/{name}")
        if owner is not None:
            return kind, owner
    return None


async def _members(
    api: ApiClient, owner: dict[str, Any], *, kind: str, namespace: str
) -> list[dict[str, Any]]:
    """Pods that belong to the object, by name; those of a tree are found with the tree."""
    if kind == "Pod":
        return [owner]
    if kind == COMPOSITE:
        return []
    name = str(value_at(owner, "metadata", "name"))
    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[dict[str, Any]] = []
    for label in {"PodGroup": _GROUP_LABELS, "Job": (JOB_LABEL,)}.get(kind, ()):
        query = {"labelSelector": f"{label}={name}"}
        found += await list_objects(api, path, what="pods", query=query)
    if kind == "PodGroup" and not found:
        # Annotations and the field of native groups cannot be selected on: look at every pod.
        every = await list_objects(api, path, what="pods")
        found = [pod for pod in every if group_of_pod(pod) == name]
    return _by_name(found)


def _by_name(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pod once, in the order of their names."""
    by_name = {str(value_at(pod, "metadata", "name")): pod for pod in pods}
    return [by_name[member] for member in sorted(by_name)]


async def _events(
    api: ApiClient, namespace: str, subjects: list[tuple[str, str]]
) -> list[dict[str, Any]]:

    path = f"/api/v1/namespaces/{namespace}/events"
    found = []
    for kind, name in subjects:
        query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
        found += await list_objects(api, path, what="events", query=query)
    return found
