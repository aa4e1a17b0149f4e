"""A scenario on an embedded cluster of its own, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import attrs

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.app import AppOptions
from gpusched.io.history.played_starts import PlayedStarts
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.run import PlaySite, RunProgress, ScenarioRun, play_scenario
from gpusched.lab.scenario.play.start_plays import play_starts_of
from gpusched.lab.scenario.target_cluster.embedded import EmbeddedTarget
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import (
    ClusterRun,
    SimulationOptions,
    credentials_of,
    simulate_cluster,
)

NAME: Final = "embedded"
_BEFORE_S: Final = 600.0
"""Beyond its limit a run has so long to begin and to end."""


def play_embedded(
    scenario: Scenario, *, tell: Callable[[RunProgress], None] | None = None
) -> ScenarioRun:
    """Play a scenario; the same scenario gives the same run, byte for byte.

    Raises:
        ConfigError: an object that is to be there from the beginning is refused.
    """

    async def story(world: ClusterRun) -> ScenarioRun:
        ground = EmbeddedTarget(world.cluster, world.clock)

        async def play_starts() -> PlayedStarts:
            return await play_starts_of(world.cluster, world.clock, scenario.config)

        def daemon(number: int) -> AppOptions:
            rng = random.Random(f"{scenario.seed}/daemon/{number}")  # noqa: S311  # repeatable
            return AppOptions(
                config=scenario.config,
                clock=world.clock,
                rng=rng,
                kubeconfig=credentials_of(world.cluster),
                identity=f"daemon-{number}",
                inline=True,
                opened=sessions_to(world.cluster.in_process),
                play_starts=play_starts if scenario.plays_starts else None,
            )

        site = PlaySite(ground=ground, name=NAME, daemon=daemon, cluster=world.cluster)
        run = await play_scenario(scenario, site, tell=tell)
        ground.close()
        return run

    options = SimulationOptions(
        seed=scenario.seed,
        config=scenario.config,
        daemons=0,
        gangs=scenario.gangs,
        stage_files=scenario.stages,
        limit_s=scenario.limit_s + _BEFORE_S,
    )
    with gpu_resources_in_force(scenario.config.gpu_resources):
        outcome = simulate_cluster(story, options=options)
    run = outcome.value
    assert run.record is not None, "it was played"
    counters = {**run.record.counters, "writes": float(outcome.writes)}
    record = attrs.evolve(run.record, digest=outcome.digest, counters=counters)
    return attrs.evolve(run, record=record)
