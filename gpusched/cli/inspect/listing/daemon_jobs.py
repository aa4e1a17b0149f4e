"""Gangs as the daemon itself tells them, by the view that it serves (docs/view.md)."""

from __future__ import annotations

from typing import Final

from gpusched.api.meta.identity import parse_time
from gpusched.cli.inspect.listing.job_list import ListedJob, ListedJobs
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView, ViewClient, find_view
from gpusched.view.model import GangView

SOURCES: Final = ("daemon", "api")
"""Where ``--source`` says that gangs are read from."""


async def list_jobs_of_daemon(
    api: ApiClient, scope: str, election: LeaderElectionConfig
) -> ListedJobs:
    """Every gang of a scope that the user may see.

    Args:
        api: of the cluster.
        scope: ``/namespaces/NAME``, or empty for all of them.
        election: names the Lease beside which the view is announced.

    Raises:
        NoView: no daemon serves one, or it cannot be read.
    """
    route = await find_view(api, namespace=election.lease_namespace, lease=election.lease_name)
    async with ViewClient(route) as client:
        about = await client.read("/v1")
        gangs = await client.gangs(namespace=scope.rpartition("/")[2])
    if about.get("namespaces") != "all" and not gangs:
        raise NoView("the daemon shows this user no gang there")
    return ListedJobs(jobs=tuple(map(_listed, gangs)), refused=())


def _listed(gang: GangView) -> ListedJob:
    return ListedJob(
        namespace=gang.metadata.namespace,
        name=gang.metadata.name,
        kind=gang.gang_kind,
        queue=gang.queue,
        priority=gang.priority,
        state=gang.state,
        placed=gang.placed,
        waiting=gang.waiting,
        least=gang.min_member,
        gpus=gang.gpus,
        since=parse_time(gang.since) if gang.since else 0.0,
        position=gang.position,
        start=gang.estimated_start_time,
        reason=gang.reason,
        message=gang.message,
        nodes=gang.nodes,
    )
