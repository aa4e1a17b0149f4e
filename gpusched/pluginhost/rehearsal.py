"""One session on an empty cluster, before a configuration decides about a real one.

It finds what importing cannot: a plugin that cannot open, which would stop all placing, and
actions or hooks whose absence a reader of the file may not notice.
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
from gpusched.session.decide import decide
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache

_EARLIER_ACTIONS: Final = {
    "allocate": ("enqueue",),
    "preempt": ("enqueue", "allocate"),
    "reclaim": ("enqueue", "allocate"),
    "consolidate": ("enqueue", "allocate"),
    "backfill": ("enqueue", "allocate", "preempt", "reclaim"),
}
"""Shipped actions, each with those that should have run before it in a session."""
_ORDER_EFFECTS: Final = {
    "allocate": "gangs are placed a session after they were admitted",
    "preempt": "it evicts before free room was tried",
    "reclaim": "it evicts before free room was tried",
    "consolidate": "it moves before free room was tried",
    "backfill": "small jobs take room before larger ones were tried",
}
_EXPECTED_HOOKS: Final = {
    "node_filter": "pods go to nodes whatever their taints, selectors and conditions",
    "quota_check": "nothing holds queues to their capability",
}
"""Hooks that almost everybody wants somebody to register, and what their absence means."""

_REQUIRED_HOOKS: Final = {"reclaim": ("reclaim_check", "reclaim_gate")}
"""Actions that do nothing unless somebody registers these hooks."""


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
                Cache(config.scheduler_names).snapshot(clock.now()),
                policy,
                guard=guard,
                masks=SessionCache(),
                placement=config.placement,
            )
    except Exception as error:  # noqa: BLE001 - ours, and sessions contain it: no reason not to start
        return (f"a session on nothing failed: {type(error).__name__}: {error}",)
    records = guard.records()
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
        *_action_order_warnings(config),
        *(
            f"{config.source}: no plugin registers {hook}: {effect}"
            for hook, effect in _EXPECTED_HOOKS.items()
            if hook not in registered
        ),
        *_idle_action_warnings(config, registered),
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


def _action_order_warnings(config: Config) -> Sequence[str]:
    said = []
    for index, name in enumerate(config.actions):
        late = [each for each in _EARLIER_ACTIONS.get(name, ()) if each in config.actions[index:]]
        if late:
            line = config.action_lines[index] if config.action_lines else 0
            said.append(
                f"{config.at(line)}: action {name} stands before {' and '.join(late)}: "
                f"{_ORDER_EFFECTS[name]}"
            )
    if "allocate" not in config.actions:
        said.append(f"{config.source}: actions do not name allocate: no gang is ever placed")
    return said


def _idle_action_warnings(config: Config, registered: AbstractSet[str]) -> Sequence[str]:
    said = []
    for index, name in enumerate(config.actions):
        missing = [hook for hook in _REQUIRED_HOOKS.get(name, ()) if hook not in registered]
        if missing:
            line = config.action_lines[index] if config.action_lines else 0
            said.append(
                f"{config.at(line)}: action {name} does nothing: no plugin registers "
                f"{' and '.join(missing)}"
            )
    return said
