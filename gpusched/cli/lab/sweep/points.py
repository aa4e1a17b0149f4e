"""One point of a sweep: a configuration with changes on one input with one seed, and what came of it."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any, Final

import attrs

from gpusched import __version__
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.cli.lab.simulate.settings import SimulationSetting, check_changes
from gpusched.cli.lab.sweep.sweep_inputs import Playable, SweepInput, pack
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.lab.report.statistics.asked import AskedStatistic
from gpusched.lab.report.statistics.comparison import STATISTICS
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.on_embedded import play_embedded
from gpusched.lab.simulate.variations import (
    ChangeableNames,
    Variations,
    vary_arrivals,
    vary_objects,
)

FORMAT: Final = 1
"""Of results; another number makes old ones those of another sweep."""
_BROKEN_MAX: Final = 20
"""Sentences about broken invariants in one result."""


@frozen(kw_only=True)
class SweepPoint:
    """One point.

    Attributes:
        input: what it is played on.
        seed: of what is drawn; 0 where nothing is.
        configuration: name of the configuration that the values change.
        values: what is varied, keys of ``--set`` with their values as text.
        setting: the configuration with those values.
        asked: statistics beside those that every comparison has.
        key: hash of all of this, of the input's content and of the version.
    """

    input: SweepInput
    seed: int
    configuration: str
    values: tuple[tuple[str, str], ...]
    setting: SimulationSetting = attrs.field(repr=False)
    asked: tuple[AskedStatistic, ...] = ()
    key: str

    @property
    def label(self) -> str:
        """For sentences."""
        said = ", ".join(f"{key}={value}" for key, value in self.values)
        parts = [self.configuration, said, f"seed {self.seed}" if self.input.seeded else ""]
        return f"{self.input.name}: {'; '.join(part for part in parts if part)}"


def point_keys(
    fingerprint: str, setting: SimulationSetting, asked: tuple[AskedStatistic, ...]
) -> Callable[[int], str]:
    """What results of a setting are kept under, by seed: equal keys are equal runs of one version."""
    config = setting.config
    # Writing a configuration out takes longer than all else here, and there may be a thousand seeds.
    told = [
        repr(attrs.evolve(config, source="")), repr(config.layouts), repr(setting.changes),
        [each.text for each in asked],
    ]  # fmt: skip

    def key_of(seed: int) -> str:
        said = json.dumps([FORMAT, __version__, fingerprint, seed, *told])
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    return key_of


def pack_point(point: SweepPoint, given: Playable) -> bytes:
    """The point with its input, for a worker."""
    return pack((point, given))


def play_packed(work: bytes) -> bytes:
    """Play a packed point; its result as JSON, the same bytes wherever it is played.

    Raises:
        ConfigError: the configuration does not go with the input.
        InvariantBroken: a bug.
    """
    point, given = pickle.loads(work)  # noqa: S301 - what this program packed
    result = _result(point, play_point(point, given))
    return (json.dumps(result, indent=1, sort_keys=True) + "\n").encode()


def check_point(point: SweepPoint, names: ChangeableNames | None) -> None:
    """Whether the changes of a point go with its input.

    Args:
        point: that is to be played.
        names: of queues and levels there; None for a scenario.

    Raises:
        ConfigError: they do not.
    """
    if names is not None:
        check_changes([point.setting], names)
    elif point.setting.changes != Variations():
        raise ConfigError(
            f"{point.label}: a scenario says its own queues and workloads; only keys of the "
            "configuration (plugins., placement., cycle., limits., actions) vary on it"
        )


def play_point(point: SweepPoint, given: Playable) -> RunRecord:
    """Play a point on its input.

    Raises:
        ConfigError: the configuration does not go with the input.
        InvariantBroken: a bug.
    """
    if isinstance(given, Scenario):
        return _play_scenario(point, given)
    setting = point.setting
    with gpu_resources_in_force(setting.config.gpu_resources):
        return run_simulation(
            SimulationCase(
                name=setting.name,
                config=setting.config,
                plays_shards=True,
                objects=vary_objects(given.objects, setting.changes),
                arrivals=vary_arrivals(given.arrivals(), setting.changes),
                until=given.until,
                step_s=given.step_s,
                pace=given.pace,
                epoch=given.epoch,
                seed=point.seed,
            )
        )


def _play_scenario(point: SweepPoint, scenario: Scenario) -> RunRecord:
    run = play_embedded(attrs.evolve(scenario, config=point.setting.config))
    assert run.record is not None, "it was played"
    return run.record


def _result(point: SweepPoint, record: RunRecord) -> dict[str, Any]:
    classes = sorted({job.klass for job in record.jobs})
    queues = sorted({job.queue for job in record.jobs})
    return {
        "key": point.key,
        "version": __version__,
        "input": point.input.name,
        "seed": point.seed,
        "configuration": point.configuration,
        "values": dict(point.values),
        "simulatedSeconds": record.seconds,
        "jobs": len(record.jobs),
        "neverStarted": sum(job.started is None for job in record.jobs),
        "statistics": {
            **{each.name: statistic(record, each.name).value for each in STATISTICS},
            **{each.text: each.measure(record).value for each in point.asked},
        },
        "p95WaitByClass": {
            each: statistic(record, "p95(wait)", of={"class": each}).value for each in classes
        },
        "meanWaitByQueue": {
            each: statistic(record, "mean(wait)", of={"queue": each}).value for each in queues
        },
        "broken": [each.sentence for each in record.broken[:_BROKEN_MAX]],
        "unfinished": record.unfinished,
    }
