"""From a parsed file to a ``Config``: keys, types, ranges, and rules between the fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import GpuResources, gpu_resources_in_force
from gpusched.base import limits
from gpusched.config.model import (
    DEFAULT,
    FOREIGN_NAMES_SHOWN,
    GROUP_PRIORITIES,
    INCREMENTAL,
    SOLVERS,
    USERS_BELIEVED,
    Config,
    CycleConfig,
    ForeignNamesShown,
    GroupPriority,
    Incremental,
    LeaderElectionConfig,
    PlacementConfig,
    PluginChoice,
    PluginTier,
    Solver,
    UsersBelieved,
)
from gpusched.config.read_gpu_resources import (
    read_device_quota,
    read_gpu_resources,
    read_prices,
    read_type_weights,
)
from gpusched.config.read_limits import read_client_connection, read_history, read_limits
from gpusched.config.read_shards import read_shards
from gpusched.config.section import ConfigSection, list_items, one_of
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
    quoted,
)

_MS: Final = NANOSECONDS // 1000
_SEED_MAX: Final = 2**31 - 1
_NO_CHOICES: Final[tuple[PluginChoice, ...]] = ()
_NO_ARGUMENTS: Final[Mapping[str, YamlEntry]] = MappingProxyType({})


def read_config(root: YamlNode, problems: ConfigProblems) -> Config | None:
    """Build the configuration; None when the file is not even a mapping.

    Whatever is wrong goes into ``problems``; then the result is not to be used.
    """
    top = ConfigSection.from_node(root, "the configuration", problems)
    if top is None:
        return None
    config = Config(
        source=problems.source,
        scheduler_names=top.read("schedulerNames", _names, default=DEFAULT.scheduler_names),
        names_of_other_namespaces=top.read(
            "namesOfOtherNamespaces",
            _foreign_names,
            default=DEFAULT.names_of_other_namespaces,
        ),
        pod_group_priority=top.read(
            "podGroupPriority", _group_priority, default=DEFAULT.pod_group_priority
        ),
        non_preemptible_from_priority=top.read(
            "nonPreemptibleFromPriority",
            _priority_border,
            default=DEFAULT.non_preemptible_from_priority,
        ),
        users=top.read("users", _users, default=DEFAULT.users),
        gpu_resources=_gpu_resources(top),
        actions=top.read("actions", _names, default=DEFAULT.actions),
        action_lines=top.lines("actions"),
        tiers=top.read("tiers", _tiers, default=DEFAULT.tiers),
        placement=top.read("placement", _placement, default=DEFAULT.placement),
        cycle=top.read("cycle", _cycle, default=DEFAULT.cycle),
        limits=top.read("limits", read_limits, default=DEFAULT.limits),
        client_connection=top.read(
            "clientConnection", read_client_connection, default=DEFAULT.client_connection
        ),
        history=top.read("history", read_history, default=DEFAULT.history),
        leader_election=top.read("leaderElection", _election, default=DEFAULT.leader_election),
        shards=top.read("shards", read_shards, default=DEFAULT.shards),
    )
    if config.shards and config.gpu_resources.type_weights:
        problems.add(
            top.key_line("shards"),
            "shards and gpuTypeWeights do not go together: grants of queues count GPUs without weights",
        )
    top.finish()
    return config


def _gpu_resources(top: ConfigSection) -> GpuResources:
    """The list of GPUs with weights of their types and what devices count as, sections of their own."""
    listed = top.read("gpuResources", read_gpu_resources, default=DEFAULT.gpu_resources)
    none: tuple[tuple[str, int], ...] = ()
    weights = top.read("gpuTypeWeights", read_type_weights, default=none)
    listed = attrs.evolve(listed, type_weights=weights) if weights else listed
    prices, other = top.read("prices", read_prices, default=(none, listed.other_price))
    if (prices, other) != (none, listed.other_price):
        listed = attrs.evolve(listed, prices=prices, other_price=other)
    with gpu_resources_in_force(listed):  # amounts of its GPUs are counted in thousandths
        rows = top.read("deviceQuota", read_device_quota, default=listed.device_quota)
    return listed if rows == listed.device_quota else attrs.evolve(listed, device_quota=rows)


# -- sections -------------------------------------------------------------------------------


def _placement(node: YamlNode, name: str, problems: ConfigProblems) -> PlacementConfig:
    default = DEFAULT.placement
    section = ConfigSection.from_node(node, name, problems)
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
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return default
    debounce = seconds(low=0, high=limits.DEBOUNCE_MAX_S * NANOSECONDS)
    period = seconds(low=100 * _MS, high=limits.CYCLE_PERIOD_MAX_S * NANOSECONDS)
    cycle = CycleConfig(
        debounce_s=section.read("debounce", debounce, default=default.debounce_s),
        max_period_s=section.read("maxPeriod", period, default=default.max_period_s),
        incremental=section.read("incremental", _incremental, default=default.incremental),
        play_starts_s=section.read(
            "playStarts",
            seconds(low=0, high=limits.PLAY_STARTS_MAX_S * NANOSECONDS),
            default=default.play_starts_s,
        ),
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
    section = ConfigSection.from_node(node, name, problems)
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


def _check_timing(election: LeaderElectionConfig, section: ConfigSection) -> None:
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
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, "a tier", problems)
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
    for item in list_items(node, name):
        section = ConfigSection.from_node(item, "a plugin of a tier", problems)
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


def _names(node: YamlNode, name: str, problems: ConfigProblems) -> tuple[str, ...]:
    names: list[str] = []
    for item in list_items(node, name):
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
    return one_of(node, name, SOLVERS)


def _foreign_names(node: YamlNode, name: str, _: ConfigProblems) -> ForeignNamesShown:
    return one_of(node, name, FOREIGN_NAMES_SHOWN)


def _incremental(node: YamlNode, name: str, _: ConfigProblems) -> Incremental:
    return one_of(node, name, INCREMENTAL)


def _users(node: YamlNode, name: str, _: ConfigProblems) -> UsersBelieved:
    return one_of(node, name, USERS_BELIEVED)


def _group_priority(node: YamlNode, name: str, _: ConfigProblems) -> GroupPriority:
    return one_of(node, name, GROUP_PRIORITIES)


def _priority_border(node: YamlNode, name: str, problems: ConfigProblems) -> int | None:
    if node.value is None:
        return None
    return whole_number(low=-(2**31), high=2**31 - 1)(node, name, problems)


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
