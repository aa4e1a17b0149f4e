"""A scenario on an embedded cluster of its own, in virtual time."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from gpusched.app import AppOptions
from gpusched.scenario.ground_embedded import EmbeddedGround
from gpusched.scenario.model import Scenario
from gpusched.scenario.play import Progress, Run, Site, play
from gpusched.simulate import SimulationOptions, World, simulate
from gpusched.simulate.inside import sessions_to

NAME: Final = "embedded"
_BEFORE_S: Final = 600.0
"""Beyond its limit a run has so long to begin and to end."""


def play_embedded(scenario: Scenario, *, tell: Callable[[Progress], None] | None = None) -> Run:
    """Play a scenario; the same scenario gives the same run, byte for byte.

    Raises:
        ConfigError: an object that is to be there from the beginning is refused.
    """

    async def story(world: World) -> Run:
        ground = EmbeddedGround(world.cluster, world.clock)
        with tempfile.TemporaryDirectory(prefix="gpusched-scenario-") as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(world.cluster.kubeconfig_text)
            kubeconfig.chmod(0o600)

            def daemon(number: int) -> AppOptions:
                rng = random.Random(f"{scenario.seed}/daemon/{number}")  # noqa: S311  # repeatable
                return AppOptions(
                    config=scenario.config,
                    clock=world.clock,
                    rng=rng,
                    kubeconfig=str(kubeconfig),
                    identity=f"daemon-{number}",
                    inline=True,
                    opened=sessions_to(world.cluster.inside),
                )

            site = Site(ground=ground, name=NAME, daemon=daemon, cluster=world.cluster)
            run = await play(scenario, site, tell=tell)
            ground.close()
            return run

    options = SimulationOptions(
        seed=scenario.seed,
        config=scenario.config,
        daemons=0,
        stage_files=scenario.stages,
        limit_s=scenario.limit_s + _BEFORE_S,
    )
    outcome = simulate(story, options=options)
    run = outcome.value
    assert run.record is not None, "it was played"
    counters = {**run.record.counters, "writes": float(outcome.writes)}
    record = attrs.evolve(run.record, digest=outcome.digest, counters=counters)
    return attrs.evolve(run, record=record)
