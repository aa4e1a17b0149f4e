"""``gpusched check-config FILE``: would the daemon start with it, and what would it run?"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import attrs

from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.api.meta.gpu_resources import (
    DeviceQuota,
    GpuResource,
    GpuResources,
    gpu_resources_in_force,
)
from gpusched.api.meta.resources import Resources
from gpusched.base.clock import SystemClock
from gpusched.base.errors import ConfigError
from gpusched.cli.command import Subparsers, add_output, print_json, table
from gpusched.config.load import load_file
from gpusched.config.model import (
    DEFAULT_LIMITS,
    Config,
    CycleConfig,
    HistoryConfig,
    Incremental,
    LimitsConfig,
    PluginChoice,
    ShardConfig,
)
from gpusched.pluginhost.registry import load_policy
from gpusched.pluginhost.rehearsal import rehearse, rehearse_on_pods
from gpusched.session.containment.kept_sessions import undeclared_parts
from gpusched.session.state.policy import Policy


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "check-config",
        description="Read a configuration, load what it names and run it once on an empty "
        "cluster, as the daemon does at start, then on a made-up one with gangs.",
    )
    parser.add_argument("file", metavar="FILE", help="such as conf/gpusched.yaml")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Do what the daemon does at start, and more: try what the file names on made-up gangs, too.

    Raises:
        ConfigError: with every problem found.
    """
    try:
        config = load_file(arguments.file)
        policy = load_policy(config)
        warnings = _try_policy(config, policy)
    except ConfigError as error:
        if arguments.output == "json":
            print_json({"file": arguments.file, "valid": False, "problems": error.problems})
            return error.exit_status
        raise
    if arguments.output == "json":
        print_json(
            {
                "file": arguments.file,
                "valid": True,
                "problems": [],
                "warnings": warnings,
                "config": _json(config),
            }
        )
    else:
        print(f"{arguments.file} is good; the daemon would run:")
        print(table(_rows(config, policy), indent="  "))
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return 0


def _try_policy(config: Config, policy: Policy) -> tuple[str, ...]:
    """Try what a configuration names on nothing and on gangs, and return warnings.

    Raises:
        ConfigError: something raises.
    """
    warnings = rehearse(config, policy, clock=SystemClock())
    failures = rehearse_on_pods(config, policy, clock=SystemClock())
    if failures:
        raise ConfigError(*failures)
    return warnings


def _incremental_text(incremental: Incremental, policy: Policy) -> str:
    """Whether a session in which nothing changed is answered by an earlier one, and why not."""
    silent = undeclared_parts(policy)
    if incremental == "never" or not silent:
        return f"incremental: {incremental}"
    held = f"every session is held, as depends_on is not stated by {', '.join(silent)}"
    return f"incremental: {incremental}, but {held}"


def _rows(config: Config, policy: Policy) -> list[tuple[str, str]]:
    placement, cycle, election = config.placement, config.cycle, config.leader_election
    connection = config.client_connection
    search = f"{placement.solver}, budget {_span(placement.time_budget_s)}"
    rhythm = f"{_span(cycle.debounce_s)} after a change, at least every"
    lease = f"lease {election.lease_namespace}/{election.lease_name}"
    terms = f"of {_span(election.lease_duration_s)}, renewed every {_span(election.retry_period_s)}"
    return [
        ("schedulerNames", ", ".join(config.scheduler_names)),
        ("namesOfOtherNamespaces", config.names_of_other_namespaces),
        ("podGroupPriority", config.pod_group_priority),
        *_priority_border(config),
        ("users", _users_text(config)),
        ("gpuResources", ", ".join(each.name for each in config.gpu_resources.listed)),
        *_type_weights(config),
        *_prices(config),
        ("deviceQuota", _device_quota_text(config)),
        ("actions", ", ".join(config.actions)),
        *(
            (f"tier {number}", ", ".join(_choice(choice) for choice in tier.plugins))
            for number, tier in enumerate(config.tiers, start=1)
        ),
        ("placement", f"{search}, workers {placement.workers}, seed {placement.seed}"),
        (
            "cycle",
            f"{rhythm} {_span(cycle.max_period_s)}; {_incremental_text(cycle.incremental, policy)}",
        ),
        ("playStarts", f"every {_span(cycle.play_starts_s)}" if cycle.play_starts_s else "never"),
        ("limits", _limits_text(config.limits)),
        (
            "clientConnection",
            f"{connection.qps} requests a second, {connection.max_connections} connections",
        ),
        ("history", _history_text(config.history)),
        (
            "leaderElection",
            f"{lease} {terms}, given up after {_span(election.renew_deadline_s)}",
        ),
        *[("shards", "; ".join(map(_shard_text, config.shards)))][: len(config.shards)],
    ]


def _shard_text(shard: ShardConfig) -> str:
    """A shard with the nodes that belong to it."""
    rules = (
        " ".join((rule.key, rule.operator, *[", ".join(rule.values)] * bool(rule.values)))
        for rule in shard.selector.requirements
    )
    return f"{shard.name} (nodes with {' and '.join(rules)})"


def _shard_json(shard: ShardConfig) -> dict[str, Any]:
    rules = [
        {"key": rule.key, "operator": rule.operator}
        | ({"values": list(rule.values)} if rule.values else {})
        for rule in shard.selector.requirements
    ]
    return {"name": shard.name, "nodeSelector": {"matchExpressions": rules}}


def _history_text(history: HistoryConfig) -> str:
    bounds = f"for {_span(history.keep_s)}, {history.max_rows:,} runs at most"
    return f"{history.file}, {bounds}" if history.file else f"no file; in one of --history {bounds}"


def _choice(choice: PluginChoice) -> str:
    if not choice.arguments:
        return choice.name
    return f"{choice.name} ({', '.join(f'{k}: {_word(v)}' for k, v in choice.arguments.items())})"


def _word(value: Any) -> str:
    """As it stands in the file."""
    return json.dumps(_plain(value)) if not isinstance(value, str) else value


def _priority_border(config: Config) -> list[tuple[str, str]]:
    border = config.non_preemptible_from_priority
    return [] if border is None else [("nonPreemptibleFromPriority", str(border))]


def _type_weights(config: Config) -> list[tuple[str, str]]:
    weights = config.gpu_resources.type_weights
    told = ", ".join(f"{name} {weight / 1000:g}" for name, weight in weights)
    return [("gpuTypeWeights", told)] if weights else []


def _prices(config: Config) -> list[tuple[str, str]]:
    resources = config.gpu_resources
    named = [*resources.prices, ("other", resources.other_price)]
    told = ", ".join(f"{name} {price / 1000:g}" for name, price in named)
    return [("prices", told)] if (resources.prices, resources.other_price) != ((), 1_000) else []


def _users_text(config: Config) -> str:
    if config.users == "ignored":
        return "ignored: limits by user are of all users together"
    return "annotated: not safe without the policy gpusched-users, as anybody may write any name"


def _device_quota_text(config: Config) -> str:
    with gpu_resources_in_force(config.gpu_resources):
        rows = [
            f"{row.device_class or 'a selector'} "
            + ", ".join([Resources(row.amounts).text()] * bool(row.amounts) + [
                f"{capacity} as {name}" for name, capacity in row.capacities
            ])
            for row in config.gpu_resources.device_quota
        ]  # fmt: skip
    return "; ".join(rows) or "devices count as nothing"


def _device_row(row: DeviceQuota, resources: GpuResources) -> dict[str, Any]:
    whose = {"deviceClass": row.device_class} if row.device_class else {"selector": row.selector}
    with gpu_resources_in_force(resources):
        amounts: dict[str, Any] = dict(Resources(row.amounts).quantities())
    amounts |= {name: {"capacity": capacity} for name, capacity in row.capacities}
    return {**whose, "amounts": amounts, "count": "part" if row.by_part else "whole"}


def _span(seconds: float) -> str:
    return format_duration(round(seconds * NANOSECONDS))


def _json(config: Config) -> dict[str, Any]:
    """The configuration with every default filled in, under the keys of the file."""
    election = config.leader_election
    return {
        "schedulerNames": config.scheduler_names,
        "namesOfOtherNamespaces": config.names_of_other_namespaces,
        "podGroupPriority": config.pod_group_priority,
        "nonPreemptibleFromPriority": config.non_preemptible_from_priority,
        "gpuResources": [_resource(each) for each in config.gpu_resources.listed],
        "gpuTypeWeights": {
            name: weight / 1000 for name, weight in config.gpu_resources.type_weights
        },
        "prices": {
            **{name: price / 1000 for name, price in config.gpu_resources.prices},
            "other": config.gpu_resources.other_price / 1000,
        },
        "users": config.users,
        "deviceQuota": [
            _device_row(each, config.gpu_resources) for each in config.gpu_resources.device_quota
        ],
        "actions": config.actions,
        "tiers": [
            {
                "plugins": [
                    {"name": choice.name, "arguments": _plain(choice.arguments)}
                    for choice in tier.plugins
                ]
            }
            for tier in config.tiers
        ],
        "placement": {
            "solver": config.placement.solver,
            "timeBudget": _span(config.placement.time_budget_s),
            "workers": config.placement.workers,
            "seed": config.placement.seed,
        },
        "cycle": _cycle_json(config.cycle),
        "limits": _limits_json(config.limits),
        "clientConnection": {
            "qps": config.client_connection.qps,
            "maxConnections": config.client_connection.max_connections,
        },
        "history": {
            "file": config.history.file,
            "keep": _span(config.history.keep_s),
            "maxRows": config.history.max_rows,
        },
        "leaderElection": {
            "leaseName": election.lease_name,
            "leaseNamespace": election.lease_namespace,
            "leaseDuration": _span(election.lease_duration_s),
            "renewDeadline": _span(election.renew_deadline_s),
            "retryPeriod": _span(election.retry_period_s),
        },
        **({"shards": [_shard_json(each) for each in config.shards]} if config.shards else {}),
    }


def _cycle_json(cycle: CycleConfig) -> dict[str, Any]:
    return {
        "debounce": _span(cycle.debounce_s),
        "maxPeriod": _span(cycle.max_period_s),
        "incremental": cycle.incremental,
        "playStarts": _span(cycle.play_starts_s),
    }


def _limits_json(limits: LimitsConfig) -> dict[str, Any]:
    """The section under the keys of the file: fields that end in ``_s`` are durations."""
    told: dict[str, Any] = {}
    for name, value in attrs.asdict(limits).items():
        first, *rest = name.removesuffix("_s").split("_")
        key = first + "".join(word.capitalize() for word in rest)
        told[key] = _span(value) if name.endswith("_s") else value
    return told


def _limits_text(limits: LimitsConfig) -> str:
    """Limits that are not as they are by default."""
    usual, found = _limits_json(DEFAULT_LIMITS), _limits_json(limits)
    changed = [f"{key}: {value}" for key, value in found.items() if value != usual[key]]
    return ", ".join(changed) or "as by default"


def _resource(each: GpuResource) -> dict[str, Any]:
    told = {
        "name": each.name,
        "slicePrefix": each.slice_prefix,
        "productLabels": each.product_labels,
        "memoryLabel": each.memory_label,
        "replicasLabel": each.replicas_label,
        "driver": each.driver,
    }
    return {key: value for key, value in told.items() if value}


def _plain(value: Any) -> Any:
    """Mapping proxies as dicts, which json can write."""
    if hasattr(value, "items"):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
