"""Where commands read gangs, nodes and queues from: the view that the daemon serves (docs/view.md), else the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gpusched.base.classes import frozen
from gpusched.base.errors import Denied
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView, ViewClient, find_view
from gpusched.view.model import GangView

T = TypeVar("T")
SOURCES: Final = ("daemon", "api")
"""What ``--source`` takes."""


@frozen(kw_only=True)
class ViewSource:
    """Reads the daemon's view where there is one, and says so where it is not read.

    Attributes:
        chosen: ``daemon`` or ``api``; None for the daemon where there is one.
        election: names the Lease beside which the view is announced.
    """

    chosen: str | None
    election: LeaderElectionConfig

    async def read(
        self,
        api: ApiClient,
        *,
        of_daemon: Callable[[ViewClient], Awaitable[T]],
        of_api: Callable[[], Awaitable[T]],
    ) -> tuple[T, tuple[str, ...]]:
        """What was read, and what is to be known about where.

        Args:
            api: of the cluster.
            of_daemon: reads the view.
            of_api: reads the API's objects.

        Raises:
            NoView: the daemon alone was to be asked, and serves none.
            Denied: this user may not see it.
        """
        if self.chosen == "api":
            return await of_api(), ()
        name = self.election.lease_name
        try:
            route = await find_view(api, namespace=self.election.lease_namespace, lease=name)
            async with ViewClient(route) as client:
                return await of_daemon(client), ()
        except (NoView, Denied) as error:
            if self.chosen == "daemon":
                raise
            why = str(error)
        return await of_api(), (f"read from the API, not from the daemon: {why}",)


async def gangs_of_daemon(client: ViewClient, namespace: str) -> list[GangView]:
    """Gangs of a namespace that the user may see, or of all of them.

    Raises:
        NoView: the user sees only some namespaces, and no gang there.
    """
    about = await client.read("/v1")
    gangs = await client.gangs(namespace=namespace)
    if about.get("namespaces") != "all" and not gangs:
        raise NoView("the daemon shows this user no gang there")
    return gangs
