"""Everything that is known about one gang: its objects, what the daemon's view says of it, its events and claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.api.foreign.kinds import WORKLOADS
from gpusched.api.gang.native_terms import COMPOSITE
from gpusched.api.meta.identity import GangKey
from gpusched.base.clock import SystemClock
from gpusched.cache.gangs.foreign.pod_grouper import STAGE
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import list_objects, value_at
from gpusched.cli.inspect.devices.device_reader import has_claims, read_devices
from gpusched.cli.inspect.devices.device_story import describe_claims
from gpusched.cli.inspect.explaining.explanation import GangObjects, lacks_pods
from gpusched.cli.inspect.explaining.group_tree import (
    describe_tree,
    leaves_below,
    read_groups,
    tree_of,
)
from gpusched.cli.inspect.explaining.kept_nodes import read_kept_nodes
from gpusched.cli.inspect.explaining.owners import gang_key_of_pod
from gpusched.cli.inspect.explaining.place_in_order import missing_order_notes
from gpusched.cli.inspect.explaining.refused_pods import read_refused_pods
from gpusched.cli.inspect.explaining.subject import GROUP_KINDS, Subject, find_subject
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.cli.inspect.pod_groups import API, group_of_pod
from gpusched.config.model import DEFAULT, Config
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import ViewClient
from gpusched.view.gang_story import GangStory
from gpusched.view.model import GangView

_KUBERNETES: Final = "scheduling.k8s.io/"
_COLLECTIONS: Final = {"PodGroup": "podgroups", "Job": "jobs"}
_MEMBERS_ASKED: Final = 3
"""Members whose events are read as well: the others' say the same."""
_GANGS_ASKED: Final = 50
"""Gangs of one object that are told: of a Job of many independent pods the first."""


async def gather_objects(
    api: ApiClient,
    *,
    namespace: str,
    name: str,
    kinds: Sequence[str],
    source: ViewSource,
    config: Config = DEFAULT,
) -> GangObjects | None:
    """Everything that is known about a gang, None when there is nothing of that name.

    Args:
        api: of the cluster.
        namespace: of the object that is asked about.
        name: of the same.
        kinds: that it may be of; the first that has the name counts.
        source: of the view.
        config: names the schedulers whose pods are ours, and the Lease of their daemon.
    """
    subject, asked = await find_subject(api, namespace=namespace, name=name, kinds=kinds)
    if subject is None:
        return None
    subject, tree = await _with_tree(api, subject)
    subject = subject.with_pod(asked)
    now = SystemClock().now()
    gangs, notes = await _gangs(api, subject, source, config, now)
    claimants = [pod for pod in subject.pods if has_claims(pod)]
    claims = []
    if claimants:
        claims = describe_claims(claimants, await read_devices(api, namespace))
    objects = GangObjects(
        served=tuple(sorted(config.scheduler_names)),
        leader=await cluster_reader.leader_text(api, config.leader_election, now=now),
        claims=tuple(claims),
        gangs=gangs,
        notes=notes,
        kind=subject.kind,
        namespace=namespace,
        name=subject.name,
        owner=subject.owner,
        pods=subject.pods,
        events=tuple(await _events(api, subject)),
        tree=tuple(tree),
        kept=await read_kept_nodes(api, gangs),
        now=now,
    )
    suspended = value_at(subject.owner, "spec", "suspend") is True
    if subject.kind in {"Pod", COMPOSITE} or suspended or not lacks_pods(objects):
        return objects
    return attrs.evolve(objects, refused=tuple(await read_refused_pods(api, subject)))


async def _with_tree(api: ApiClient, subject: Subject) -> tuple[Subject, list[dict[str, Any]]]:
    """The subject with the pods of its tree, and the tree, where it is a group of Kubernetes in one."""
    owner, kind, namespace = subject.owner, subject.kind, subject.namespace
    if kind not in GROUP_KINDS or not str(owner.get(API)).startswith(_KUBERNETES):
        return subject, []
    every = await read_groups(api, namespace)
    found = tree_of(every, kind, subject.name)
    if not found:
        return subject, []
    all_pods = await list_objects(api, f"/api/v1/namespaces/{namespace}/pods", what="pods")
    if kind == COMPOSITE:
        below = leaves_below(every, subject.name)
        pods = {
            str(value_at(pod, "metadata", "name")): pod
            for pod in all_pods
            if group_of_pod(pod) in below
        }
        subject = attrs.evolve(subject, pods=tuple(pods[name] for name in sorted(pods)))
    return subject, describe_tree(found, all_pods, group_of_pod)


async def _gangs(
    api: ApiClient, subject: Subject, source: ViewSource, config: Config, now: float
) -> tuple[tuple[GangStory, ...], tuple[str, ...]]:
    """The gangs of a subject as the view tells them, by key, and a note on where that was read."""
    keys = _possible_keys(subject)

    async def of_daemon(client: ViewClient) -> tuple[list[GangStory], tuple[str, ...]]:
        names = [(key.kind, key.name) for key in keys]
        if any(key.kind in WORKLOADS for key in keys):  # stages of a gang have keys of their own
            gangs = await client.gangs(namespace=subject.namespace)
            names = [(g.gang_kind, g.metadata.name) for g in gangs if _is_of(g, keys)]
        found = [
            await client.gang(subject.namespace, kind, name) for kind, name in names[:_GANGS_ASKED]
        ]
        known = [each for each in found if each is not None]
        return known, await missing_order_notes(client, known)

    async def of_api() -> tuple[list[GangStory], tuple[str, ...]]:
        # A third of the modules of this command, where no daemon answers.
        from gpusched.cli.inspect.listing.api_objects import read_objects  # noqa: PLC0415
        from gpusched.cli.inspect.listing.view_of_api import gang_stories  # noqa: PLC0415

        scope, names = f"/namespaces/{subject.namespace}", config.scheduler_names
        found = await read_objects(api, scope, schedulers=names, now=now, needed=())
        if _COLLECTIONS.get(subject.kind) in found.refused:
            return [], ()  # its gang would seem to lack the very object that is asked about
        return [each for each in gang_stories(found) if _is_of(each, keys)], ()

    (stories, missing), notes = await source.read(api, of_daemon=of_daemon, of_api=of_api)
    return tuple(stories), (*notes, *missing)


def _possible_keys(subject: Subject) -> list[GangKey]:
    """Keys that gangs of a subject may have: a Job's pods are one gang, or one each."""
    keys = {GangKey(subject.kind, subject.namespace, subject.name)}
    pods = [(pod, key) for pod in subject.pods if (key := gang_key_of_pod(pod)) is not None]
    keys |= {key for _, key in pods}
    lone = sorted(
        GangKey("Pod", subject.namespace, str(value_at(pod, "metadata", "name")))
        for pod, key in pods
        if key.kind == "Job"
    )
    return [*sorted(keys), *lone]


def _is_of(gang: GangView, keys: Sequence[GangKey]) -> bool:
    name = gang.metadata.name.partition(STAGE)[0] if gang.gang_kind in WORKLOADS else ""
    mine = {gang.metadata.name, name}
    return any(gang.gang_kind == key.kind and key.name in mine for key in keys)


async def _events(api: ApiClient, subject: Subject) -> list[dict[str, Any]]:
    """About the object, then about some of its pods."""
    subjects = [(subject.kind, subject.name)]
    if subject.kind != "Pod":
        names = [str(value_at(pod, "metadata", "name")) for pod in subject.pods]
        subjects += [("Pod", member) for member in names[:_MEMBERS_ASKED]]
    path = f"/api/v1/namespaces/{subject.namespace}/events"
    found = []
    for kind, name in subjects:
        query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
        found += await list_objects(api, path, what="events", query=query)
    return found
