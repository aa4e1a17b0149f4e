"""A scenario on a real cluster, in real time: the same files, the same judge."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from typing import Final

import attrs

from gpusched.app import AppOptions
from gpusched.clock import Clock, SystemClock
from gpusched.io.api import Api
from gpusched.io.sessions import Open, over_http
from gpusched.scenario.ground_real import RealGround
from gpusched.scenario.model import Scenario
from gpusched.scenario.play import Progress, Run, Site, play
from gpusched.scenario.real_prepare import DAEMON, clean, prepare

NAME: Final = "cluster"
Tell = Callable[[Progress], None]


def play_real(
    scenario: Scenario,
    kubeconfig: str | None,
    *,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Run:
    """Play a scenario on a cluster and remove what it made.

    Args:
        scenario: one that needs faults or restarts of the server is skipped, with the reason.
        kubeconfig: a file; None for the usual places.
        tell: given the progress.
        note: given sentences about what was done in the cluster, or may be missing there.

    Raises:
        ConfigError: the cluster is not fit for it, see ``prepare``.
        ClusterUnreachable: it was not there from the beginning.
    """
    if scenario.embedded_only:
        return Run(scenario=scenario, skipped=scenario.embedded_only)
    options = RealOptions(kubeconfig=kubeconfig, run=secrets.token_hex(4))
    return asyncio.run(play_on(scenario, options, tell=tell, note=note))


@attrs.frozen(kw_only=True)
class RealOptions:
    """Which cluster, and how it is spoken to.

    Attributes:
        run: ID of the run, a label's value.
        inline: daemons decide in the event loop (virtual time).
        opened: makes what carries requests and answers.
    """

    kubeconfig: str | None
    run: str
    clock: Clock = attrs.field(factory=SystemClock)
    inline: bool = False
    opened: Open = over_http


async def play_on(
    scenario: Scenario,
    options: RealOptions,
    *,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Run:
    """See ``play_real``."""
    clock = options.clock
    api = await Api.connect(options.kubeconfig, clock=clock, opened=options.opened)
    ground = RealGround(api, clock, run=options.run)
    try:
        # Who is not there at the start is not waited for.
        await api.server_version()
        prepared = await prepare(ground, scenario, tell=note)

        def daemon(number: int) -> AppOptions:
            return AppOptions(
                config=scenario.config,
                clock=clock,
                rng=random.Random(f"{options.run}/daemon/{number}"),  # noqa: S311  # jitter
                kubeconfig=options.kubeconfig,
                identity=f"{DAEMON}{number}",
                inline=options.inline,
                opened=options.opened,
            )

        site = Site(ground=ground, name=NAME, daemon=daemon, led=bool(prepared.led))
        try:
            run = await play(scenario, site, tell=tell)
        finally:
            await clean(ground, tell=note)
    finally:
        await ground.close()
        await api.close()
    return run
