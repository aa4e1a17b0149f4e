"""The points of a plan: every value with every other, or settings that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.lab.simulate.settings import SimulationSetting, setting_of
from gpusched.cli.lab.sweep.points import SweepPoint, point_keys
from gpusched.cli.lab.sweep.sweep_file import BaseConfiguration, SweepPlan, VariedKey
from gpusched.cli.lab.sweep.sweep_inputs import SweepInput
from gpusched.lab.report.statistics.asked import AskedStatistic

_SHUFFLED_MAX: Final = 10_000_000
"""Settings that are drawn as a sample; a range of more may be longer than a list can be."""
Values: TypeAlias = tuple[tuple[str, str], ...]


def plan_points(
    plan: SweepPlan, told: Callable[[int], None] = lambda _found: None
) -> list[SweepPoint]:
    """Every point, in the order of configurations, settings, inputs and seeds.

    Args:
        plan: of the sweep.
        told: how many points there are so far, after each setting.

    Raises:
        ConfigError: a file or a value cannot be used; nothing has run then.
    """
    prints = {each.name: each.fingerprint() for each in plan.inputs}
    varied = {each.key: each.place for each in plan.varied}
    found: list[SweepPoint] = []
    for base in plan.configurations:
        for values in drawn_settings(plan):
            setting = build_setting(base, values, plan.source, varied)
            for given in plan.inputs:
                found += input_points(
                    given, prints[given.name], plan.seeds,
                    setting=setting, values=values, asked=plan.asked,
                )  # fmt: skip
            told(len(found))
    return found


def input_points(
    given: SweepInput, fingerprint: str, seeds: Sequence[int], *,
    setting: SimulationSetting, values: Values, asked: tuple[AskedStatistic, ...],
) -> Iterator[SweepPoint]:  # fmt: skip
    """The points of one setting on one input: one a seed where seeds change it."""
    key_of = point_keys(fingerprint, setting, asked)
    for seed in seeds if given.seeded else (0,):
        yield SweepPoint(
            input=given,
            seed=seed,
            configuration=setting.name,
            values=values,
            setting=setting,
            asked=asked,
            key=key_of(seed),
        )


def build_setting(
    base: BaseConfiguration,
    values: Values,
    source: str,
    varied: Mapping[str, str] = MappingProxyType({}),
) -> SimulationSetting:
    """The configuration with its own changes and the varied values.

    Args:
        base: the configuration.
        values: of what is varied.
        source: where a key is written of which nothing better is known, for sentences.
        varied: ``FILE:LINE`` of keys that are varied.

    Raises:
        ConfigError: a file or a value cannot be used.
    """
    written = {**base.places, **varied}
    places = {key: f"{place}: {base.name}:" for key, place in written.items()}
    changes = (*base.changes, *values)
    try:
        return setting_of(base.name, base.file, changes, place=source, places=places)
    except UsageError as error:
        raise ConfigError(str(error)) from error
    except ConfigError as error:
        if not base.place or error.problems[0].startswith(tuple(places.values())):
            raise
        begin = f"{base.place}: {base.name}: "
        raise ConfigError(*(f"{begin}{each}" for each in error.problems)) from error


def drawn_settings(plan: SweepPlan) -> Iterator[Values]:
    """Values of all keys: the grid, the last key changing fastest, or draws without repetition."""
    count = plan.grid
    if plan.search is None:
        for number in range(count):
            yield _setting_values(plan.varied, number)
        return
    rng = random.Random(plan.search.seed)  # noqa: S311 - nothing secret is drawn
    wanted = min(count, plan.search.settings)
    if count <= _SHUFFLED_MAX:
        numbers = rng.sample(range(count), wanted)
    else:  # so many that hardly any is drawn twice
        unlike: dict[int, None] = {}
        while len(unlike) < wanted:
            unlike[rng.randrange(count)] = None
        numbers = list(unlike)
    for number in numbers:
        yield _setting_values(plan.varied, number)


def _setting_values(varied: Sequence[VariedKey], number: int) -> Values:
    """The setting of that number, as digits are those of a number."""
    found = []
    for each in reversed(varied):
        number, index = divmod(number, each.count)
        found.append((each.key, each.value(index)))
    return tuple(reversed(found))
