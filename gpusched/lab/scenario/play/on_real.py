"""A scenario on a real cluster, in real time: the same files, the same judge."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.app import AppOptions
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock, SystemClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.transport import Open, over_http
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.run import PlaySite, RunProgress, ScenarioRun, play_scenario
from gpusched.lab.scenario.target_cluster.real import RealTarget
from gpusched.lab.scenario.target_cluster.real_preparation import (
    DAEMON,
    prepare_cluster,
    remove_run_objects,
)

NAME: Final = "cluster"
Tell = Callable[[RunProgress], None]


def play_real(
    scenario: Scenario,
    kubeconfig: str | None,
    *,
    tell: Tell | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> ScenarioRun:
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
        return ScenarioRun(scenario=scenario, skipped=scenario.embedded_only)
    options = RealOptions(kubeconfig=kubeconfig, run=secrets.token_hex(4))
    return asyncio.run(play_on(scenario, options, tell=tell, note=note))


@frozen(kw_only=True)
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
) -> ScenarioRun:
    """Play scenarios on a real cluster; see ``play_real``."""
    clock = options.clock
    api = await ApiClient.connect(options.kubeconfig, clock=clock, opened=options.opened)
    ground = RealTarget(api, clock, run=options.run)
    try:
        # Who is not there at the start is not waited for.
        await api.server_version()
        prepared = await prepare_cluster(ground, scenario, tell=note)

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

        site = PlaySite(ground=ground, name=NAME, daemon=daemon, led=bool(prepared.led))
        try:
            with gpu_resources_in_force(scenario.config.gpu_resources):
                run = await play_scenario(scenario, site, tell=tell)
        finally:
            await remove_run_objects(ground, tell=note)
    finally:
        await ground.close()
        await api.close()
    return run
