"""Finds the actions and plugins that a configuration names, among installed entry points.

Nothing else is imported. What is shipped comes in through the same entry points as an outside
author's package. Everything wrong with the configuration is found here and told with file,
line and the names that exist, before a first session runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol

from gpusched.base.errors import ConfigError, PluginFault
from gpusched.config.model import Config, PluginChoice
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.pluginhost.args import args_class, build_args
from gpusched.pluginhost.guard import run_foreign_code
from gpusched.session.framework.plugin import PLUGIN_API, ActionNeeds, Capability, Plugin
from gpusched.session.state.policy import (
    Action,
    Policy,
    action_capabilities,
    action_needs,
)

PLUGINS_GROUP: Final = "gpusched.plugins"
ACTIONS_GROUP: Final = "gpusched.actions"


class EntryPoint(Protocol):
    """What we use of ``importlib.metadata.EntryPoint``."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def value(self) -> str:
        """Where the class is, as ``module:Class``."""

    def load(self) -> Any:
        """Import the class and return it."""


EntryPointSource = Callable[[str], Iterable[EntryPoint]]
"""The entry points of a group."""


def installed_entry_points(group: str) -> Iterable[EntryPoint]:
    """The entry points of a group in every installed package.

    They are read again when something was installed in a folder of the search path.
    """
    return _entry_points(tuple((each, _changed_ns(each)) for each in sys.path))[group]


@lru_cache(maxsize=2)
def _entry_points(_search_path: tuple[tuple[str, int], ...]) -> Mapping[str, Iterable[EntryPoint]]:
    """Entry points of both groups; reading those of every package takes 15 ms."""
    found = metadata.entry_points()
    return {each: tuple(found.select(group=each)) for each in (ACTIONS_GROUP, PLUGINS_GROUP)}


def _changed_ns(folder: str) -> int:
    """When a folder of the search path changed last, nanoseconds since the epoch; 0 for none."""
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def load_policy(config: Config, *, offers: EntryPointSource = installed_entry_points) -> Policy:
    """Import and build what the configuration names, and nothing else.

    Args:
        config: read and believed.
        offers: where entry points come from; tests give their own.

    Raises:
        ConfigError: every problem found, one sentence each.
    """
    problems: list[str] = []
    actions = _load_actions(config, offers(ACTIONS_GROUP), problems)
    known = _by_name(offers(PLUGINS_GROUP))
    tiers: list[tuple[Plugin, ...]] = []
    for tier in config.tiers:
        plugins = []
        for choice in tier.plugins:
            try:
                plugins.append(_load_plugin(choice, known, config=config))
            except ConfigError as error:
                problems.extend(error.problems)
            except PluginFault as fault:
                problems.append(
                    f"{config.at(choice.line)}: plugin {quoted(choice.name)} cannot be used: "
                    f"{fault.why}"
                )
        tiers.append(tuple(plugins))
    if problems:
        raise ConfigError(*problems)
    return Policy(actions, tuple(tiers))


def plugin_class(name: str, *, offers: EntryPointSource = installed_entry_points) -> type[Any]:
    """The class of an installed plugin.

    Raises:
        ConfigError: there is none of that name.
        PluginFault: it cannot be imported.
    """
    return _load_class(name, _by_name(offers(PLUGINS_GROUP)), kind="plugin", place="plugins")


def _load_actions(
    config: Config, offered: Iterable[EntryPoint], problems: list[str]
) -> tuple[Action, ...]:
    known = _by_name(offered)
    actions: list[Action] = []
    for index, name in enumerate(config.actions):
        line = config.action_lines[index] if config.action_lines else 0
        try:
            action = _load_action(name, known, place=config.at(line))
        except ConfigError as error:
            problems.extend(error.problems)
        except PluginFault as fault:
            problems.append(f"{config.at(line)}: action {quoted(name)} cannot be used: {fault.why}")
        else:
            actions.append(action)
    return tuple(actions)


def _load_action(name: str, known: dict[str, list[EntryPoint]], *, place: str) -> Action:
    cls = _load_class(name, known, kind="action", place=place)
    _check_api(name, getattr(cls, "api", PLUGIN_API))  # an action need not say it
    if not callable(getattr(cls, "run", None)):
        raise PluginFault(name, "load", f"{cls.__qualname__} has no method run")
    action: Action = run_foreign_code(name, "load", cls)
    provides: object = action_capabilities(action)
    if not isinstance(provides, tuple) or not all(isinstance(p, Capability) for p in provides):
        raise PluginFault(name, "load", f"provides is {provides!r}, not a tuple of Capability")
    if not isinstance(action_needs(action), ActionNeeds):
        raise PluginFault(name, "load", f"needs is {action_needs(action)!r}, not ActionNeeds")
    return action


def _load_plugin(
    choice: PluginChoice, known: dict[str, list[EntryPoint]], *, config: Config
) -> Plugin:
    cls = _load_class(choice.name, known, kind="plugin", place=config.at(choice.line))
    _check_api(choice.name, getattr(cls, "api", None))
    if not callable(getattr(cls, "open", None)):
        raise PluginFault(choice.name, "load", f"{cls.__qualname__} has no method open")
    arguments = args_class(choice.name, cls)
    given: dict[str, Any] = {}
    if arguments is not None:
        given["args"] = build_args(arguments, choice, config=config)
    elif choice.arguments:
        key = next(iter(choice.arguments))
        place = config.at(choice.argument_lines.get(key, choice.line))
        raise ConfigError(
            f"{place}: unknown argument {quoted(key)} of plugin {quoted(choice.name)}: "
            f"it takes no arguments"
        )
    plugin: Plugin = run_foreign_code(choice.name, "load", lambda: cls(**given))
    return plugin


def _check_api(name: str, api: object) -> None:
    if api != PLUGIN_API:
        raise PluginFault(name, "load", f"it is written for api {api!r}, this is api {PLUGIN_API}")


def _load_class(
    name: str, known: dict[str, list[EntryPoint]], *, kind: str, place: str
) -> type[Any]:
    """Import the one class behind a name and check that it is what it is called."""
    if name not in known:
        names = sorted(known)
        raise ConfigError(
            f"{place}: unknown {kind} {quoted(name)}: "
            f"known {kind}s are {list_names(names)}{did_you_mean(name, names)}"
        )
    found = known[name]
    if len(found) > 1:
        both = " and ".join(sorted(point.value for point in found))
        raise ConfigError(f"{place}: {kind} {quoted(name)} is offered twice: by {both}")
    cls = run_foreign_code(name, "load", found[0].load)
    if not isinstance(cls, type):
        raise PluginFault(name, "load", f"{found[0].value} is no class")
    own = getattr(cls, "name", None)
    if own != name:
        raise PluginFault(name, "load", f"{found[0].value} calls itself {own!r}")
    return cls


def _by_name(offered: Iterable[EntryPoint]) -> dict[str, list[EntryPoint]]:
    """Entry points by name; the same one seen twice (an editable install) counts once."""
    known: dict[str, list[EntryPoint]] = {}
    for point in offered:
        same = known.setdefault(point.name, [])
        if all(point.value != other.value for other in same):
            same.append(point)
    return known
