"""Feature gates of Kubernetes' own gangs: which release's form is served, and what of it.

All are off by default, as on a real server. A gate that needs another one cannot be on alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError

Obj = dict[str, Any]

GENERIC: Final = "GenericWorkload"
TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
PREEMPTION: Final = "WorkloadAwarePreemption"
CLAIMS: Final = "DRAWorkloadResourceClaims"
WITH_JOB: Final = "WorkloadWithJob"
COMPOSITE: Final = "CompositePodGroup"
PREEMPTION_POLICY: Final = "PodGroupPreemptionPolicy"

_NEEDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "1.36": {
        GENERIC: (),
        "GangScheduling": (GENERIC,),
        PREEMPTION: ("GangScheduling",),
        TOPOLOGY: (GENERIC,),
        CLAIMS: (GENERIC,),
        WITH_JOB: (GENERIC,),
    },
    "1.37": {
        GENERIC: (),
        TOPOLOGY: (GENERIC,),
        CLAIMS: (GENERIC,),
        WITH_JOB: (GENERIC,),
        COMPOSITE: (GENERIC, TOPOLOGY),
        PREEMPTION_POLICY: (GENERIC,),
    },
}
"""By release: its gates, and the gates that each of them needs."""

RELEASES: Final = tuple(_NEEDS)
_TEMPLATES: Final = ("jobs.batch", "deployments.apps", "replicasets.apps", "statefulsets.apps")


@frozen
class GangFeatures:
    """What is served of Kubernetes' own gangs.

    Attributes:
        release: whose form is served, such as ``1.36``.
        gates: names of the feature gates that are on; none for a server without gangs.
    """

    release: str = "1.36"
    gates: frozenset[str] = frozenset()

    def enabled(self, gate: str) -> bool:
        """Tell whether a gate is on; one that the release lacks counts as on when its kind is.

        Kubernetes 1.37 has no ``WorkloadAwarePreemption`` any more: it is part of the groups.
        """
        if gate == PREEMPTION and self.release == "1.37":
            return self.served
        return gate in self.gates

    @property
    def served(self) -> bool:
        """Whether the kinds of gangs are served at all."""
        return GENERIC in self.gates

    @property
    def editions(self) -> Mapping[str, str]:
        """The release whose schemas count, by group version of other kinds that it changed."""
        return {} if self.release == "1.36" else {"batch/v1": self.release}

    @property
    def group_version(self) -> str:
        """The version in which the cluster's own controllers write groups."""
        version = "v1alpha2" if self.release == "1.36" else "v1beta1"
        return f"scheduling.k8s.io/{version}"

    def drop_disabled(self, storage: str, obj: Obj) -> None:
        """Take fields behind closed gates out of a pod or a pod template.

        What stands below the top level may be stored already: it is replaced, never changed.
        """
        if self.served:
            return
        if storage == "pods":
            _drop(obj, ("spec",), "schedulingGroup")
        elif storage == "podtemplates":
            _drop(obj, ("template", "spec"), "schedulingGroup")
        elif storage in _TEMPLATES:
            _drop(obj, ("spec", "template", "spec"), "schedulingGroup")


OFF: Final = GangFeatures()
"""No gangs, as on a server whose gates are left alone."""


def _drop(obj: Obj, path: tuple[str, ...], field: str) -> None:
    holder: Any = obj
    for key in path:
        holder = holder.get(key)
        if not isinstance(holder, dict):
            return
    if field not in holder:
        return
    parent = obj
    for key in path:
        parent[key] = dict(parent[key])
        parent = parent[key]
    del parent[field]


def all_gates(release: str) -> GangFeatures:
    """Return a release with every gate of its gangs on.

    Raises:
        ConfigError: the release is not among those served.
    """
    return GangFeatures(release, frozenset(_gates_of(release)))


def read_features(release: str, gates: str) -> GangFeatures:
    """Read the two options that switch gangs on.

    Args:
        release: ``off``, or the release whose gangs are served with all gates on.
        gates: ``NAME=true,NAME=false``: changes of single gates; of 1.36 when no release is
            named.

    Raises:
        ConfigError: the release is unknown, a gate is, or one is on without what it needs.
    """
    chosen = OFF if release == "off" else all_gates(release)
    known = _gates_of(chosen.release)
    on = set(chosen.gates)
    for text in (part.strip() for part in gates.split(",") if part.strip()):
        name, _, value = text.partition("=")
        if name not in known:
            raise ConfigError(
                f"{name} is no gate of gangs in Kubernetes {chosen.release}; known: "
                f"{', '.join(known)}"
            )
        if value not in {"true", "false"}:
            raise ConfigError(f"a feature gate is given as {name}=true or {name}=false")
        on = on | {name} if value == "true" else on - {name}
    _check_needs(chosen.release, on)
    return GangFeatures(chosen.release, frozenset(on))


def _gates_of(release: str) -> Mapping[str, tuple[str, ...]]:
    if release not in _NEEDS:
        raise ConfigError(
            f"gangs are served as in Kubernetes {' or '.join(RELEASES)}, not {release}"
        )
    return _NEEDS[release]


def _check_needs(release: str, on: Iterable[str]) -> None:
    for gate in sorted(on):
        missing = [need for need in _NEEDS[release][gate] if need not in on]
        if missing:
            raise ConfigError(f"the feature gate {gate} needs {', '.join(missing)} to be on")
