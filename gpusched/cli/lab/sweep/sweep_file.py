"""The file of a sweep: inputs, seeds, configurations and what is varied; strict like the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import (
    GENERATED_JOBS_MAX,
    SCENARIO_SEED_MAX,
    SWEEP_FILE_BYTES_MAX,
    SWEEP_POINTS_MAX,
    SWEEP_VALUES_MAX,
    TRACE_DAYS_MAX,
)
from gpusched.cli.lab.sweep.sweep_inputs import FILES, SweepInput
from gpusched.config.section import ConfigSection, list_items, one_of
from gpusched.config.values import BadValueError, object_name, plain_value, whole_number
from gpusched.config.yaml_parser import parse_yaml, read_file
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value, quoted
from gpusched.lab.report.statistics.asked import AskedStatistic, parse_asked
from gpusched.lab.report.statistics.named import UnknownStatistic

_KINDS: Final = ("generate", "csv", "philly", "openb", "snapshot", "scenario")
_RANGE_MAX: Final = 10**12
_SETTINGS_MAX: Final = 10_000_000


@frozen(kw_only=True)
class VariedKey:
    """One key that is varied.

    Attributes:
        values: in the file's order, as text; of a range that is searched, empty.
        low, high: whole numbers between which a search draws; equal where values are listed.
        place: ``FILE:LINE`` where it is written.
    """

    key: str
    values: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    place: str = ""

    @property
    def count(self) -> int:
        """How many values it can have."""
        return len(self.values) or self.high - self.low + 1

    def value(self, index: int) -> str:
        """One of them."""
        return self.values[index] if self.values else str(self.low + index)


@frozen(kw_only=True)
class BaseConfiguration:
    """A configuration that what is varied begins from; ``changes`` are keys of ``--set`` with values.

    Attributes:
        place: ``FILE:LINE`` where it is written; empty where no file says it.
        places: the same of the keys that are changed.
    """

    name: str
    file: str | None = None
    changes: tuple[tuple[str, str], ...] = ()
    place: str = ""
    places: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@frozen(kw_only=True)
class SweepSearch:
    """Random draws in place of the whole grid; ``settings`` of them for each configuration."""

    settings: int
    seed: int = 1


@frozen(kw_only=True)
class SweepPlan:
    """What the file asks for."""

    source: str
    inputs: tuple[SweepInput, ...]
    seeds: tuple[int, ...]
    configurations: tuple[BaseConfiguration, ...]
    varied: tuple[VariedKey, ...]
    search: SweepSearch | None
    asked: tuple[AskedStatistic, ...]

    @property
    def runs_a_setting(self) -> int:
        """Points of one setting: its inputs, those that are drawn once for each seed."""
        return sum(len(self.seeds) if each.seeded else 1 for each in self.inputs)

    @property
    def grid(self) -> int:
        """Settings of one configuration if every value is tried with every other."""
        count = 1
        for each in self.varied:
            count *= each.count
        return count

    @property
    def settings(self) -> int:
        """Settings of all configurations."""
        drawn = self.grid if self.search is None else min(self.grid, self.search.settings)
        return drawn * len(self.configurations)

    @property
    def points(self) -> int:
        """Points in all."""
        return self.settings * self.runs_a_setting


def read_sweep(path: Path) -> SweepPlan:
    """Read a file.

    Raises:
        ConfigError: with a sentence for everything that is wrong, ``FILE:LINE: ...``.
    """
    problems = ConfigProblems(str(path))
    raw = read_file(str(path), most=SWEEP_FILE_BYTES_MAX)
    root = parse_yaml(raw, problems, empty="a sweep needs inputs")
    top = None if root is None else ConfigSection.from_node(root, "the sweep", problems)
    if top is None:
        raise problems.error()
    nothing: tuple[Any, ...] = ()
    plan = SweepPlan(
        source=str(path),
        inputs=top.read("inputs", _inputs(path.parent, str(path)), default=nothing),
        seeds=top.read("seeds", _seeds, default=(1,)),
        configurations=top.read(
            "configurations", _configurations(path.parent), default=(BaseConfiguration(name="now"),)
        ),
        varied=top.read("vary", _varied, default=nothing),
        search=top.read("search", _search, default=None),
        asked=top.read("statistics", _asked, default=nothing),
    )
    top.finish()
    if "inputs" not in top.entries:
        problems.add(top.line, "the sweep needs inputs: a list of traces, snapshots or scenarios")
    ranges = [each for each in plan.varied if not each.values]
    if ranges and plan.search is None and not problems:
        problems.add(
            top.key_line("vary"),
            f"{ranges[0].key} is a range without step, from which a search draws: give it a step, "
            "or write search: {settings: 40, seed: 1}",
        )
    if problems:
        raise problems.error()
    return plan


def check_points(plan: SweepPlan, most: int = SWEEP_POINTS_MAX) -> None:
    """Refuse what nobody waits for, before anything runs.

    Raises:
        ConfigError: there are more points than asked for.
    """
    if plan.points > most:
        grid = " x ".join(str(each.count) for each in plan.varied) or "1"
        drawn = f"{grid} settings" if plan.search is None else f"{plan.search.settings} settings"
        raise ConfigError(
            f"{plan.source}: {plan.points:,} points ({drawn}, {len(plan.configurations)} "
            f"configurations, {plan.runs_a_setting} inputs and seeds) are more than {most:,}: name "
            f"fewer values, draw some with search:, or ask for them with --points-max {plan.points}"
        )


# -- sections ------------------------------------------------------------------------------------
def _inputs(
    folder: Path, source: str
) -> Callable[[YamlNode, str, ConfigProblems], tuple[SweepInput, ...]]:
    def read(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[SweepInput, ...]:
        found = []
        for item in list_items(node, name):
            section = ConfigSection.from_node(item, "an input", problems)
            if section is not None:
                found.append(_input(section, folder, source))
        _check_names([each.name for each in found], node, "input")
        return tuple(found)

    return read


def _input(section: ConfigSection, folder: Path, source: str) -> SweepInput:
    options: dict[str, Any] = {}
    name = section.read("name", object_name, default="")
    for key in (*FILES, "scenario"):
        file = section.read(key, _text, default="")
        if file:
            options[key] = str(folder / file)
    options["generate"] = section.read(
        "generate", lambda node, key, _: one_of(node, key, ("philly", "m6")), default=None
    )
    pair = section.read("openb", _two_files, default=None)
    options["openb"] = None if pair is None else [str(folder / each) for each in pair]
    options["jobs"] = section.read(
        "jobs", whole_number(low=1, high=GENERATED_JOBS_MAX), default=None
    )
    options["days"] = section.read("days", _days, default=None)
    options["first"] = section.read(
        "first", whole_number(low=0, high=GENERATED_JOBS_MAX), default=None
    )
    for key, option in (
        ("nodes", "nodes"), ("for", "span"), ("assumeDuration", "assume_duration"),
        ("grace", "grace"), ("startDelay", "start_delay"), ("step", "step"),
    ):  # fmt: skip
        options[option] = section.read(key, _text, default=None)
    options["half"] = section.read(
        "half", lambda node, key, _: one_of(node, key, ("first", "second")), default=None
    )
    for key in ("suspend", "strict"):
        options[key] = section.read(key, _flag, default=None)
    section.finish()
    options = {key: value for key, value in options.items() if value is not None}
    if not name and "name" not in section.entries:
        section.problems.add(section.line, "an input needs a name")
    if sum(key in options for key in _KINDS) != 1:
        section.problems.add(section.line, f"an input is one of {', '.join(_KINDS)}")
    if "half" in options and not {"csv", "philly"} & options.keys():
        section.problems.add(
            section.line, "half is of csv and philly: the first or second half of the jobs"
        )
    if "scenario" in options and len(options) > 1:
        section.problems.add(section.line, "a scenario takes nothing but a name beside it")
    return SweepInput(name=name, options=options, place=f"{source}:{section.line}")


def _configurations(
    folder: Path,
) -> Callable[[YamlNode, str, ConfigProblems], tuple[BaseConfiguration, ...]]:
    def read(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[BaseConfiguration, ...]:
        found = []
        for item in list_items(node, name):
            section = ConfigSection.from_node(item, "a configuration", problems)
            if section is None:
                continue
            file = section.read("file", _text, default="")
            found.append(
                BaseConfiguration(
                    name=section.read("name", object_name, default=""),
                    file=str(folder / file) if file else None,
                    changes=section.read("set", _changes, default=()),
                    place=f"{problems.source}:{section.line}",
                    places=_places(section, "set"),
                )
            )
            section.finish()
            if "name" not in section.entries:
                problems.add(section.line, "a configuration needs a name")
        _check_names([each.name for each in found], node, "configuration")
        return tuple(found)

    return read


def _check_names(names: list[str], node: YamlNode, what: str) -> None:
    twice = next((each for each in names if each and names.count(each) > 1), None)
    if twice is not None:
        raise BadValueError(node.line, f"there are two {what}s named {quoted(twice)}")


def _changes(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[tuple[str, str], ...]:
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return ()
    return tuple((key, value_text(entry.node, key)) for key, entry in section.entries.items())


def _places(section: ConfigSection, key: str) -> dict[str, str]:
    """Where each key of a mapping in a section is written."""
    entry = section.entries.get(key)
    below = entry.node.value if entry is not None else None
    if not isinstance(below, dict):
        return {}
    return {name: f"{section.problems.source}:{each.line}" for name, each in below.items()}


def _varied(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[VariedKey, ...]:
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return ()
    found = []
    for key, entry in section.entries.items():
        if isinstance(entry.node.value, dict):
            ranged = _range(key, entry.node, problems)
            found.append(attrs.evolve(ranged, place=f"{problems.source}:{entry.line}"))
        else:
            values = tuple(value_text(item, key) for item in list_items(entry.node, key))
            if len(set(values)) < len(values):
                problems.add(entry.line, f"{key} has a value twice")
            place = f"{problems.source}:{entry.line}"
            found.append(VariedKey(key=key, values=values, place=place))
    return tuple(found)


def _range(key: str, node: YamlNode, problems: ConfigProblems) -> VariedKey:
    section = ConfigSection.from_node(node, key, problems)
    assert section is not None
    number = whole_number(low=-_RANGE_MAX, high=_RANGE_MAX)
    low = section.read("from", number, default=0)
    high = section.read("to", number, default=0)
    step = section.read("step", whole_number(low=1, high=_RANGE_MAX), default=0)
    section.finish()
    missing = [each for each in ("from", "to") if each not in section.entries]
    if missing:
        raise BadValueError(
            node.line,
            f"{key} must be a list of values, or a range {{from: LOW, to: HIGH, step: BY}}",
        )
    if high < low:
        raise BadValueError(node.line, f"{key} is from {low} to {high}: nothing is in that range")
    if not step:
        return VariedKey(key=key, low=low, high=high)
    values = range(low, high + 1, step)
    if len(values) > SWEEP_VALUES_MAX:
        raise BadValueError(
            node.line,
            f"{key} has {len(values):,} values, at most {SWEEP_VALUES_MAX:,}: a larger step",
        )
    return VariedKey(key=key, values=tuple(map(str, values)))


def _search(node: YamlNode, name: str, problems: ConfigProblems) -> SweepSearch | None:
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return None
    settings = section.read("settings", whole_number(low=1, high=_SETTINGS_MAX), default=0)
    seed = section.read("seed", whole_number(low=0, high=SCENARIO_SEED_MAX), default=1)
    section.finish()
    if "settings" not in section.entries:
        problems.add(section.line, "search needs settings: how many are drawn")
    return SweepSearch(settings=settings, seed=seed)


def _seeds(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[int, ...]:
    if not isinstance(node.value, dict):
        number = whole_number(low=0, high=SCENARIO_SEED_MAX)
        found = tuple(number(item, "a seed", problems) for item in list_items(node, name))
    else:
        ranged = _range(name, node, problems)
        if ranged.count > SWEEP_VALUES_MAX or ranged.low < 0 or ranged.high > SCENARIO_SEED_MAX:
            raise BadValueError(
                node.line, f"seeds are at most {SWEEP_VALUES_MAX:,} whole numbers from 0 on"
            )
        found = tuple(int(ranged.value(index)) for index in range(ranged.count))
    if len(set(found)) < len(found):
        raise BadValueError(node.line, "a seed is there twice")
    return found


def _asked(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[AskedStatistic, ...]:
    found = []
    for item in list_items(node, name):
        try:
            found.append(parse_asked(_text(item, "a statistic", problems)))
        except UnknownStatistic as unknown:
            problems.add(item.line, str(unknown))
    return tuple(found)


# -- values --------------------------------------------------------------------------------------
def value_text(node: YamlNode, key: str) -> str:
    """A value as ``--set`` takes it: text as it is, all else as JSON.

    Raises:
        BadValueError: it is a mapping.
    """
    value = plain_value(node)
    if isinstance(value, str) and value:
        return value
    if isinstance(value, MappingProxyType) or value == "":
        raise BadValueError(node.line, f"{key} must be a value, not {describe_value(node)}")
    if isinstance(value, tuple) and key == "actions":
        return ",".join(map(str, value))
    return json.dumps(value)


def _text(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if isinstance(node.value, str) and node.value:
        return node.value
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return str(node.value)
    raise BadValueError(node.line, f"{name} must be text, not {describe_value(node)}")


def _flag(node: YamlNode, name: str, _: ConfigProblems) -> bool:
    if isinstance(node.value, bool):
        return node.value
    raise BadValueError(node.line, f"{name} must be true or false, not {describe_value(node)}")


def _days(node: YamlNode, name: str, _: ConfigProblems) -> float:
    value = node.value
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value <= TRACE_DAYS_MAX
    ):
        return float(value)
    raise BadValueError(
        node.line,
        f"{name} must be a number above 0 and up to {TRACE_DAYS_MAX}, not {describe_value(node)}",
    )


def _two_files(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[str, str]:
    items = list_items(node, name)
    if len(items) != 2:
        raise BadValueError(node.line, f"{name} must be a list of two files: nodes and pods")
    return _text(items[0], name, problems), _text(items[1], name, problems)
