"""From a parsed file to a ``Config``: keys, types, ranges, and rules between the fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.base import limits
from gpusched.config.model import (
    DEFAULT,
    GROUP_PRIORITIES,
    SOLVERS,
    Config,
    CycleConfig,
    GroupPriority,
    LeaderElectionConfig,
    PlacementConfig,
    PluginChoice,
    PluginTier,
    Solver,
)
from gpusched.config.values import (
    BadValueError,
    namespace_name,
    nanoseconds,
    object_name,
    plain_value,
    seconds,
    whole_number,
)
from gpusched.config.yaml_tree import (
    ConfigProblems,
    YamlEntry,
    YamlNode,
    describe_value,
    did_you_mean,
    list_names,
    quoted,
)

T = TypeVar("T")
W = TypeVar("W", bound=str)

_MS: Final = NANOSECONDS // 1000
_SEED_MAX: Final = 2**31 - 1
_NO_CHOICES: Final[tuple[PluginChoice, ...]] = ()
_NO_ARGUMENTS: Final[Mapping[str, YamlEntry]] = MappingProxyType({})


def read_config(root: YamlNode, problems: ConfigProblems) -> Config | None:
    """Build the configuration; None when the file is not even a mapping.

    Whatever is wrong goes into ``problems``; then the result is not to be used.
    """
    top = _ConfigSection.of(root, "the configuration", problems)
    if top is None:
        return None
    config = Config(
        source=problems.source,
        scheduler_names=top.read("schedulerNames", _names, default=DEFAULT.scheduler_names),
        pod_group_priority=top.read(
            "podGroupPriority", _group_priority, default=DEFAULT.pod_group_priority
        ),
        actions=top.read("actions", _names, default=DEFAULT.actions),
        action_lines=top.lines("actions"),
        tiers=top.read("tiers", _tiers, default=DEFAULT.tiers),
        placement=top.read("placement", _placement, default=DEFAULT.placement),
        cycle=top.read("cycle", _cycle, default=DEFAULT.cycle),
        leader_election=top.read("leaderElection", _election, default=DEFAULT.leader_election),
    )
    top.finish()
    return config


@attrs.define
class _ConfigSection:
    """A mapping under inspection: remembers which keys are known."""

    name: str
    entries: dict[str, YamlEntry]
    problems: ConfigProblems
    line: int
    known: list[str] = attrs.field(factory=list)

    @classmethod
    def of(cls, node: YamlNode, name: str, problems: ConfigProblems) -> _ConfigSection | None:
        if isinstance(node.value, dict):
            return cls(name, node.value, problems, node.line)
        problems.add(node.line, f"{name} must be a mapping, not {describe_value(node)}")
        return None

    def read(
        self, key: str, reader: Callable[[YamlNode, str, ConfigProblems], T], *, default: T
    ) -> T:
        """The value of a key, or the default when it is absent or wrong (wrong is noted)."""
        self.known.append(key)
        entry = self.entries.get(key)
        if entry is None:
            return default
        try:
            return reader(entry.node, key, self.problems)
        except BadValueError as error:
            self.problems.add(error.line, error.what)
            return default

    def lines(self, key: str) -> tuple[int, ...]:
        """The lines of the items of a list that was read."""
        entry = self.entries.get(key)
        items = entry.node.value if entry else ()
        return tuple(item.line for item in items) if isinstance(items, tuple) else ()

    def key_line(self, key: str) -> int:
        """Where a key stands, or its section when it is left to its default."""
        return self.entries[key].line if key in self.entries else self.line

    def finish(self) -> None:
        """Note every key that nobody asked for."""
        for key, entry in self.entries.items():
            if key not in self.known:
                self.problems.add(
                    entry.line,
                    f"unknown key {quoted(key)} in {self.name}: "
                    f"known keys are {list_names(self.known)}{did_you_mean(key, self.known)}",
                )


# -- sections -------------------------------------------------------------------------------


def _placement(node: YamlNode, name: str, problems: ConfigProblems) -> PlacementConfig:
    default = DEFAULT.placement
    section = _ConfigSection.of(node, name, problems)
    if section is None:
        return default
    budget = seconds(low=_MS, high=int(limits.SESSION_MAX_S) * NANOSECONDS)
    placement = PlacementConfig(
        solver=section.read("solver", _solver, default=default.solver),
        time_budget_s=section.read("timeBudget", budget, default=default.time_budget_s),
        workers=section.read(
            "workers", whole_number(low=1, high=limits.SOLVER_WORKERS_MAX), default=default.workers
        ),
        seed=section.read("seed", whole_number(low=0, high=_SEED_MAX), default=default.seed),
    )
    section.finish()
    return placement


def _cycle(node: YamlNode, name: str, problems: ConfigProblems) -> CycleConfig:
    default = DEFAULT.cycle
    section = _ConfigSection.of(node, name, problems)
    if section is None:
        return default
    debounce = seconds(low=0, high=limits.DEBOUNCE_MAX_S * NANOSECONDS)
    period = seconds(low=100 * _MS, high=limits.CYCLE_PERIOD_MAX_S * NANOSECONDS)
    cycle = CycleConfig(
        debounce_s=section.read("debounce", debounce, default=default.debounce_s),
        max_period_s=section.read("maxPeriod", period, default=default.max_period_s),
    )
    if cycle.debounce_s >= cycle.max_period_s:
        problems.add(
            section.key_line("debounce"),
            f"cycle.debounce ({_text(cycle.debounce_s)}) must be shorter than "
            f"cycle.maxPeriod ({_text(cycle.max_period_s)})",
        )
    section.finish()
    return cycle


def _election(node: YamlNode, name: str, problems: ConfigProblems) -> LeaderElectionConfig:
    default = DEFAULT.leader_election
    section = _ConfigSection.of(node, name, problems)
    if section is None:
        return default
    span = seconds(low=100 * _MS, high=limits.LEASE_DURATION_MAX_S * NANOSECONDS)
    election = LeaderElectionConfig(
        lease_name=section.read("leaseName", object_name, default=default.lease_name),
        lease_namespace=section.read(
            "leaseNamespace", namespace_name, default=default.lease_namespace
        ),
        lease_duration_s=section.read(
            "leaseDuration", _lease_seconds, default=default.lease_duration_s
        ),
        renew_deadline_s=section.read("renewDeadline", span, default=default.renew_deadline_s),
        retry_period_s=section.read("retryPeriod", span, default=default.retry_period_s),
    )
    _check_timing(election, section)
    section.finish()
    return election


def _check_timing(election: LeaderElectionConfig, section: _ConfigSection) -> None:
    """The rules that let a deposed leader's last call end before a successor's first."""
    lease, deadline = election.lease_duration_s, election.renew_deadline_s
    retry = election.retry_period_s
    if lease <= deadline:
        section.problems.add(
            section.key_line("leaseDuration"),
            f"leaderElection.leaseDuration ({_text(lease)}) must be longer than "
            f"renewDeadline ({_text(deadline)})",
        )
    if deadline <= 1.2 * retry:
        section.problems.add(
            section.key_line("renewDeadline"),
            f"leaderElection.renewDeadline ({_text(deadline)}) must be longer than "
            f"1.2 times retryPeriod ({_text(retry)})",
        )
    elif deadline - 2 * retry <= limits.BIND_TIMEOUT_CLIENT_S:
        section.problems.add(
            section.key_line("renewDeadline"),
            f"leaderElection.renewDeadline ({_text(deadline)}) less two retryPeriods "
            f"({_text(retry)}) must be longer than one binding may take "
            f"({_text(limits.BIND_TIMEOUT_CLIENT_S)})",
        )


def _tiers(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[PluginTier, ...]:
    seen: dict[str, int] = {}
    tiers = []
    for item in _items(node, name):
        section = _ConfigSection.of(item, "a tier", problems)
        if section is None:
            continue
        if "plugins" not in section.entries:
            problems.add(item.line, "a tier needs the key plugins")
        choices = section.read("plugins", _choices, default=_NO_CHOICES)
        section.finish()
        for choice in choices:
            if choice.name in seen:
                problems.add(
                    choice.line,
                    f"plugin {quoted(choice.name)} is named twice: "
                    f"it is already in line {seen[choice.name]}",
                )
            seen.setdefault(choice.name, choice.line)
        tiers.append(PluginTier(choices))
    return tuple(tiers)


def _choices(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[PluginChoice, ...]:
    choices = []
    for item in _items(node, name):
        section = _ConfigSection.of(item, "a plugin of a tier", problems)
        if section is None:
            continue
        if "name" not in section.entries:
            problems.add(item.line, "a plugin needs the key name")
        plugin = section.read("name", object_name, default="")
        arguments = section.read("arguments", _arguments, default=_NO_ARGUMENTS)
        section.finish()
        choices.append(
            PluginChoice(
                plugin,
                MappingProxyType(
                    {key: plain_value(entry.node) for key, entry in arguments.items()}
                ),
                line=section.key_line("name"),
                argument_lines=MappingProxyType(
                    {key: entry.line for key, entry in arguments.items()}
                ),
            )
        )
    return tuple(choices)


def _arguments(node: YamlNode, name: str, _: ConfigProblems) -> Mapping[str, YamlEntry]:
    if isinstance(node.value, dict):
        return node.value
    raise BadValueError(node.line, f"{name} must be a mapping, not {describe_value(node)}")


# -- values ---------------------------------------------------------------------------------


def _items(node: YamlNode, name: str) -> tuple[YamlNode, ...]:
    if not isinstance(node.value, tuple) or not node.value:
        what = "an empty list" if node.value == () else describe_value(node)
        raise BadValueError(node.line, f"{name} must be a list of at least one, not {what}")
    if len(node.value) > limits.CONFIG_NAMES_MAX:
        raise BadValueError(
            node.line, f"{name} has {len(node.value)} items, at most {limits.CONFIG_NAMES_MAX}"
        )
    return node.value


def _names(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[str, ...]:
    names: list[str] = []
    for item in _items(node, name):
        try:
            value = object_name(item, f"an item of {name}", problems)
        except BadValueError as error:
            problems.add(error.line, error.what)
            continue
        if value in names:
            problems.add(item.line, f"{quoted(value)} stands twice in {name}")
        names.append(value)
    return tuple(names)


def _solver(node: YamlNode, name: str, _: ConfigProblems) -> Solver:
    return _one_of(node, name, SOLVERS)


def _group_priority(node: YamlNode, name: str, _: ConfigProblems) -> GroupPriority:
    return _one_of(node, name, GROUP_PRIORITIES)


def _one_of(node: YamlNode, name: str, words: tuple[W, ...]) -> W:
    for word in words:
        if node.value == word:
            return word
    close = did_you_mean(node.value, words) if isinstance(node.value, str) else ""
    raise BadValueError(
        node.line, f"{name} must be one of {list_names(words)}, not {describe_value(node)}{close}"
    )


def _lease_seconds(node: YamlNode, name: str, _: ConfigProblems) -> float:
    high = limits.LEASE_DURATION_MAX_S * NANOSECONDS
    value = nanoseconds(node, name, low=NANOSECONDS, high=high)
    if value % NANOSECONDS:
        raise BadValueError(
            node.line,
            f"{name} must be whole seconds, as a Lease holds them, not {describe_value(node)}",
        )
    return value / NANOSECONDS


def _text(seconds: float) -> str:
    return format_duration(round(seconds * NANOSECONDS))
