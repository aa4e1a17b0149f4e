"""What to do when the configuration file has changed: a decision, without any I/O.

same content ------------------------> Unchanged
an error ----------------------------> Kept     (old stays in force; event and metric)
differs where only a start can help -> Kept
differs elsewhere -------------------> Adopted  (swapped as a whole, between two sessions)
"""

from __future__ import annotations

from typing import Final, TypeAlias

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.config.gpu_layouts import CATALOG_FILE as LAYOUTS
from gpusched.config.model import Config
from gpusched.config.yaml_tree import list_names

_SECTIONS: Final = {
    "scheduler_names": "schedulerNames",
    "names_of_other_namespaces": "namesOfOtherNamespaces",
    "pod_group_priority": "podGroupPriority",
    "non_preemptible_from_priority": "nonPreemptibleFromPriority",
    "users": "users",
    "gpu_resources": "gpuResources",
    "actions": "actions",
    "tiers": "tiers",
    "placement": "placement",
    "cycle": "cycle",
    "limits": "limits",
    "client_connection": "clientConnection",
    "history": "history",
    "leader_election": "leaderElection",
    "shards": "shards",
}
_GPUS: Final = "gpuResources"
_PARTS_OF_GPUS: Final = {
    "listed": "gpuResources",
    "type_weights": "gpuTypeWeights",
    "prices": "prices",
    "other_price": "prices",
    "device_quota": "deviceQuota",
}
"""Sections of the file that ``gpu_resources`` holds."""
_NEED_A_START: Final = (
    "schedulerNames",
    *_PARTS_OF_GPUS.values(),
    "history",
    "leaderElection",
    "shards",
)
"""Whose pods are ours, what their amounts are counted in, and who may act must not change under
decisions already taken; the file of the history is opened once."""


@frozen
class ConfigUnchanged:
    """The file asks for what is in force."""


@frozen
class ConfigAdopted:
    """Take the new configuration as a whole.

    Attributes:
        changed: sections that differ, by their keys in the file.
    """

    config: Config
    changed: tuple[str, ...]


@frozen
class ConfigKept:
    """Leave the old configuration in force and say why; ``problems`` holds at least one."""

    problems: tuple[str, ...]

    @property
    def message(self) -> str:
        """For the event and the log."""
        more = len(self.problems) - 1
        others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
        return f"{self.problems[0]}{others}; the configuration in force stays"


def _parts_of_gpus(old: Config, new: Config) -> tuple[str, ...]:
    """Sections about GPUs that differ; with another list defaults of the others may do so."""
    if old.gpu_resources.listed != new.gpu_resources.listed:
        return (_GPUS,)
    return tuple(
        key
        for name, key in _PARTS_OF_GPUS.items()
        if getattr(old.gpu_resources, name) != getattr(new.gpu_resources, name)
    )


Decision: TypeAlias = ConfigUnchanged | ConfigAdopted | ConfigKept


def decide_reload(old: Config, new: Config | ConfigError) -> Decision:
    """Judge what reading the changed file (and loading its plugins) came to.

    Args:
        old: in force.
        new: what ``load`` returned or raised.
    """
    if isinstance(new, ConfigError):
        return ConfigKept(new.problems)
    changed = tuple(
        key for name, key in _SECTIONS.items() if getattr(old, name) != getattr(new, name)
    )
    changed = tuple(
        part for key in changed for part in (_parts_of_gpus(old, new) if key == _GPUS else (key,))
    )
    if old.layouts != new.layouts:
        changed = (*changed, LAYOUTS)
    if not changed:
        return ConfigUnchanged()
    blocked = [key for key in changed if key in _NEED_A_START]
    if old.client_connection.max_connections != new.client_connection.max_connections:
        blocked.append("clientConnection.maxConnections")
    if blocked:
        return ConfigKept(
            (f"{new.source}: {list_names(blocked)} changed, which takes a restart of the daemon",)
        )
    return ConfigAdopted(new, changed)
