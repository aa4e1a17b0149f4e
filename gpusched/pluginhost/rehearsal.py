"""Sessions before a configuration decides about a real cluster: one on nothing, and some on a made-up one.

The first finds what importing cannot: a plugin that cannot open, which would stop all placing, and
actions or hooks whose absence a reader of the file may not notice. The others find hooks that raise
as soon as there are pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import Clock
from gpusched.base.errors import ConfigError
from gpusched.cache.cache import Cache
from gpusched.config.model import Config
from gpusched.config.yaml_tree import quoted
from gpusched.pluginhost.args import args_class, old_words
from gpusched.pluginhost.guard import HookRecord, PluginGuard
from gpusched.pluginhost.made_up_cluster import made_up_cluster
from gpusched.session.decide import decide
from gpusched.session.framework.plugin import Capability
from gpusched.session.state.policy import Action, Policy, action_capabilities, action_needs
from gpusched.session.state.session_cache import SessionCache

_REHEARSED_AT_S: Final = (0.0, 3600.0)
"""When sessions on the made-up cluster are, in seconds from now: some rules count waiting time."""
_EXPECTED_HOOKS: Final = {
    "node_filter": "pods go to nodes whatever their taints, selectors and conditions",
    "quota_check": "nothing holds queues to their capability",
}
"""Hooks that almost every configuration needs, and what their absence means."""


def rehearse(config: Config, policy: Policy, *, clock: Clock) -> tuple[str, ...]:
    """Run the policy once on nothing.

    Args:
        config: knows where plugins were named.
        policy: loaded from it.
        clock: times the hooks.

    Returns:
        Warnings, each a sentence with its place in the file.

    Raises:
        ConfigError: a plugin cannot open, or an action fails where there is nothing to do.
    """
    guard = PluginGuard(clock)
    guard.begin_session()
    try:
        with gpu_resources_in_force(config.gpu_resources):
            decide(
                Cache(config.scheduler_names).take_snapshot(clock.now()),
                policy,
                guard=guard,
                session_cache=SessionCache(),
                placement=config.placement,
            )
    except Exception as error:  # noqa: BLE001 - ours, and sessions contain it: no reason not to start
        return (f"a session on nothing failed: {type(error).__name__}: {error}",)
    records = guard.hook_records()
    lines = _configured_lines(config)
    problems = [
        f"{config.at(lines.get(who.plugin, 0))}: {_failure_message(who.plugin, who.hook, record)}"
        for who, record in records.items()
        if record.faults and who.hook in ("open", "run")
    ]
    if problems:
        raise ConfigError(*problems)
    registered = {who.hook for who in records}
    return (
        *_old_words(config, policy),
        *_action_order_warnings(config, policy),
        *(
            f"{config.source}: no plugin registers {hook}: {effect}"
            for hook, effect in _EXPECTED_HOOKS.items()
            if hook not in registered
        ),
        *_idle_action_warnings(config, policy, registered),
    )


def rehearse_on_pods(config: Config, policy: Policy, *, clock: Clock) -> tuple[str, ...]:
    """Run the policy on a made-up cluster with gangs that run, fit, wait and claim.

    Args:
        config: knows where plugins were named.
        policy: loaded from it.
        clock: times the hooks, and says when the cluster is.

    Returns:
        A sentence for each hook that raised, with its place in the file.
    """
    guard = PluginGuard(clock, compares_lists=True)
    session_cache = SessionCache()
    listed = config.gpu_resources.listed
    with gpu_resources_in_force(config.gpu_resources):
        now = clock.now()
        cache = made_up_cluster(config.scheduler_names, gpu=listed[0].name, now=now)
        for later_s in _REHEARSED_AT_S:
            guard.begin_session()
            decide(
                cache.take_snapshot(now + later_s),
                policy,
                guard=guard,
                session_cache=session_cache,
                placement=config.placement,
            )
    lines = _configured_lines(config)
    return tuple(
        f"{config.at(lines.get(who.plugin, 0))}: "
        + (
            f"action {quoted(who.plugin)} fails on a made-up cluster: {record.last_fault}"
            if who.hook == "run"
            else f"plugin {quoted(who.plugin)} fails on a made-up cluster with gangs: "
            f"{record.last_fault}"
        )
        for who, record in guard.hook_records().items()
        if record.faults
    )


def _old_words(config: Config, policy: Policy) -> Sequence[str]:
    """A warning for each word of the configuration that has another name today."""
    by_name = {plugin.name: type(plugin) for plugin in policy.plugins}
    said: list[str] = []
    for tier in config.tiers:
        for choice in tier.plugins:
            cls = by_name.get(choice.name)
            arguments = args_class(choice.name, cls) if cls and choice.arguments else None
            if arguments is not None:
                said += old_words(arguments, choice, config=config)
    return said


def _configured_lines(config: Config) -> dict[str, int]:
    lines = dict(zip(config.actions, config.action_lines, strict=False))
    for tier in config.tiers:
        lines.update((choice.name, choice.line) for choice in tier.plugins)
    return lines


def _failure_message(name: str, hook: str, record: HookRecord) -> str:
    what = "action" if hook == "run" else "plugin"
    return f"{what} {quoted(name)} fails on an empty cluster: {record.last_fault}"


def _action_order_warnings(config: Config, policy: Policy) -> Sequence[str]:
    warnings = []
    for index, action in enumerate(policy.actions):
        needs = action_needs(action)
        late = [
            other.name
            for capability in needs.after
            for other in policy.actions[index:]
            if capability in action_capabilities(other)
        ]
        if late:
            warnings.append(
                f"{_action_place(config, action)}: action {action.name} stands before "
                f"{' and '.join(late)}: {needs.otherwise}"
            )
    if Capability.PLACEMENT not in policy.capabilities:
        warnings.append(f"{config.source}: actions do not name allocate: no gang is ever placed")
    return warnings


def _idle_action_warnings(
    config: Config, policy: Policy, registered: AbstractSet[str]
) -> Sequence[str]:
    warnings = []
    for action in policy.actions:
        missing = [hook for hook in action_needs(action).hooks if hook not in registered]
        if missing:
            warnings.append(
                f"{_action_place(config, action)}: action {action.name} does nothing: "
                f"no plugin registers {' and '.join(missing)}"
            )
    return warnings


def _action_place(config: Config, action: Action) -> str:
    lines = dict(zip(config.actions, config.action_lines, strict=False))
    return config.at(lines.get(action.name, 0))
