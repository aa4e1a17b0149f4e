"""``gpusched explain podgroup NS/NAME``: why a gang waits, in the daemon's own sentences."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.gang_membership import WITHOUT_OBJECT
from gpusched.base.clock import SystemClock
from gpusched.base.errors import Denied, NotFound, UsageError
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect import cluster_reader, explanation, explanation_text
from gpusched.cli.inspect.cluster_reader import list_objects, value_at
from gpusched.cli.inspect.devices.device_reader import has_claims, read_devices
from gpusched.cli.inspect.devices.device_story import describe_claims
from gpusched.cli.inspect.explanation import GangObjects
from gpusched.cli.inspect.group_tree import describe_tree, leaves_below, read_groups, tree_of
from gpusched.cli.inspect.owners import (
    OWNER_WORDS,
    CountedGang,
    count_gangs,
    find_owner,
    gang_key_of_pod,
    list_gang,
    list_members,
    owner_of_gang,
)
from gpusched.cli.inspect.pod_groups import API, JOB_LABEL, find_group, group_of_pod
from gpusched.config.model import DEFAULT, Config
from gpusched.io.client.api_client import ApiClient

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
_GROUP_LABELS: Final = ("gpusched.io/pod-group", "scheduling.x-k8s.io/pod-group")
_MEMBER_LABELS: Final = {"PodGroup": _GROUP_LABELS, "Job": (JOB_LABEL,)}
_KUBERNETES: Final = "scheduling.k8s.io/"
_PATHS: Final = {
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    "Pod": "/api/v1/namespaces/{namespace}/pods/{name}",
}
_MEMBERS_ASKED: Final = 3
"""Members whose events are read as well: the others' say the same."""


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
    evidence = cluster_reader.with_cluster(
        connection_choice(arguments),
        lambda api: gather(api, namespace=namespace, name=name, kinds=kinds, config=config),
    )
    if evidence is None:
        what = kinds[0] if len(kinds) == 1 else "PodGroup, Job or Pod"
        raise UsageError(
            f"there is no {what} {name} in namespace {namespace}: "
            "gpusched get jobs -A lists what waits and runs"
        )
    told = explanation.explain_gang(evidence)
    if arguments.output == "json":
        print_json(told)
    else:
        print(explanation_text.render_explanation(told))
    return 0


async def gather(
    api: ApiClient,
    *,
    namespace: str,
    name: str,
    kinds: Sequence[str] = _KINDS["podgroup"],
    config: Config = DEFAULT,
) -> GangObjects | None:
    """Everything the API shows about a gang, None when there is nothing of that name.

    What belongs to a PodGroup, JobSet or other owner of one gang is explained as that: it starts
    when its gang does.

    Args:
        api: of the cluster.
        namespace: of the object that is asked about.
        name: of the same.
        kinds: that it may be of; the first that has the name counts.
        config: names the schedulers whose pods are ours, and the Lease of their daemon.
    """
    found = await _find(api, namespace, name, kinds=kinds) or await _find_gang(
        api, namespace, name, kinds=kinds
    )
    if found is None:
        return None
    kind, owner = found
    name = str(value_at(owner, "metadata", "name") or name)
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
    if kind not in {"PodGroup", COMPOSITE}:
        kind, name, owner, pods = await _whole_gang(
            api, kind, name, owner, pods, namespace=namespace
        )
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
    now = SystemClock().now()
    gangs: tuple[CountedGang, ...] = ()
    if kind not in {"PodGroup", COMPOSITE}:
        schedulers = config.scheduler_names
        gangs = await count_gangs(api, kind, owner, pods, schedulers=schedulers, now=now)
    return GangObjects(
        served=tuple(sorted(config.scheduler_names)),
        leader=await cluster_reader.leader_text(api, config.leader_election, now=now),
        claims=tuple(claims),
        gangs=gangs,
        kind=kind,
        namespace=namespace,
        name=name,
        owner=owner,
        pods=tuple(pods),
        events=tuple(await _events(api, namespace, subjects)),
        tree=tuple(tree),
        now=now,
    )


async def _whole_gang(
    api: ApiClient,
    kind: str,
    name: str,
    owner: dict[str, Any],
    pods: list[dict[str, Any]],
    *,
    namespace: str,
) -> tuple[str, str, dict[str, Any], list[dict[str, Any]]]:
    """What is to be explained for some pods: the object of their gang, with all its members.

    They themselves where they are of several gangs, or of one that nothing else stands for.
    """
    keys = {gang_key_of_pod(pod) for pod in pods}
    key = keys.pop() if len(keys) == 1 else None
    if key is None or key.kind in {"Job", "Pod", kind}:
        return kind, name, owner, pods
    if key.kind == "PodGroup":
        group = await find_group(api, namespace, key.name, kinds=("PodGroup",))
        if group is None:
            return kind, name, owner, pods
        members = await _members(api, group[1], kind="PodGroup", namespace=namespace)
        return group[0], key.name, group[1], members
    above, owner = await _object_behind(api, key, pods)
    called = str(value_at(owner, "metadata", "name"))
    return above, called, owner, await _members(api, owner, kind=above, namespace=namespace)


async def _object_behind(
    api: ApiClient, key: GangKey, pods: Iterable[dict[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Kind and object behind a gang; a name alone where there is none, or none that may be read."""
    above, called = owner_of_gang(key, pods)
    if above in OWNER_WORDS.values():
        try:
            owner = await find_owner(api, above, key.namespace, called)
        except (Denied, UsageError):
            owner = None
        if owner is not None:
            return above, owner
    return key.kind, {"metadata": {"namespace": key.namespace, "name": key.name}}


async def _find_gang(
    api: ApiClient, namespace: str, name: str, *, kinds: Sequence[str]
) -> tuple[str, dict[str, Any]] | None:
    """The object behind the gang of a name, as ``get jobs`` lists gangs: of these kinds, or of any."""
    if not ({"PodGroup"} | WITHOUT_OBJECT | set(OWNER_WORDS.values())) & set(kinds):
        return None
    try:
        pods = await list_objects(api, f"/api/v1/namespaces/{namespace}/pods", what="pods")
    except (Denied, NotFound):
        return None
    for pod in pods:
        key = gang_key_of_pod(pod)
        if key is None or key.name != name or key.kind in {"PodGroup", "Job", "Pod"}:
            continue
        if "PodGroup" in kinds or key.kind in kinds:
            return await _object_behind(api, key, [pod])
    return None


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
        if kind in OWNER_WORDS.values():
            owner = await find_owner(api, kind, namespace, name)
            if owner is not None:
                return kind, owner
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
    if kind in OWNER_WORDS.values() and value_at(owner, "metadata", "uid"):
        return _by_name(await list_members(api, kind, owner, namespace))
    if kind not in _MEMBER_LABELS:
        return _by_name(await list_gang(api, GangKey(kind, namespace, name)))
    path = f"/api/v1/namespaces/{namespace}/pods"
    found: list[dict[str, Any]] = []
    for label in _MEMBER_LABELS[kind]:
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
