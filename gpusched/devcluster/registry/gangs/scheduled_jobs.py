"""Jobs of Kubernetes 1.37, whose ``spec.scheduling`` says what group their pods are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.registry.gangs.declarative import (
    Field,
    Struct,
    Write,
    at_least_one,
    struct_errors,
)
from gpusched.devcluster.registry.gangs.features import WITH_JOB, GangFeatures
from gpusched.devcluster.registry.gangs.rules import CLAIM, CONSTRAINTS, MODE_137
from gpusched.devcluster.registry.workloads.jobs import JobStrategy

Obj = dict[str, Any]

_AT: Final = "spec.scheduling"
_MIN_COUNT: Final = Struct((Field(name="minCount", pointer=True, tests=(at_least_one,)),))
_POLICY: Final = Struct(
    (Field(name="basic"), Field(name="gang", struct=_MIN_COUNT)), union=("basic", "gang")
)
_SCHEDULING: Final = Struct(
    (
        Field(name="schedulingPolicy", kept=True, struct=_POLICY),
        Field(name="schedulingConstraints", immutable=True, struct=CONSTRAINTS),
        Field(name="disruptionMode", immutable=True, struct=MODE_137),
        Field(name="resourceClaims", immutable=True, most=4, key="name", struct=CLAIM),
    )
)
_SPEC: Final = Struct((Field(name="scheduling", gate=WITH_JOB, kept=True, struct=_SCHEDULING),))


class ScheduledJobStrategy(JobStrategy):
    """Jobs with ``spec.scheduling``.

    Args:
        features: whether its gate is open.
    """

    def __init__(self, features: GangFeatures) -> None:
        self._features = features

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new job."""
        return [*super().validate(obj), *self._scheduling_errors(obj["spec"], None)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a changed job."""
        if new["spec"] == old["spec"]:
            return []
        errors = super().validate_update(new, old)
        return [*errors, *self._scheduling_errors(new["spec"], old["spec"])]

    def _scheduling_errors(self, spec: Obj, old: Obj | None) -> Iterator[FieldError]:
        """What the job says against its own size, then the declared rules."""
        said = spec.get("scheduling") or {}
        policy = said.get("schedulingPolicy") or {}
        count, parallelism = (policy.get("gang") or {}).get("minCount"), spec.get("parallelism")
        most = 1 if parallelism is None else parallelism
        if count is not None and count > most:
            why = f"must not be greater than parallelism ({most})"
            yield invalid(f"{_AT}.schedulingPolicy.gang.minCount", count, why)
        basic = policy.get("basic") is not None or not policy
        if basic and (said.get("disruptionMode") or {}).get("all") is not None:
            why = "the disruptionMode `all` is not supported with the Basic scheduling policy"
            yield invalid(f"{_AT}.disruptionMode", "", why)
        before = ((old or {}).get("scheduling") or {}).get("schedulingPolicy")
        if before and policy and (before.get("basic") is None) != (policy.get("basic") is None):
            why = (
                "the basic/gang policy variant is immutable after creation; only "
                "schedulingPolicy.gang.minCount may be updated"
            )
            yield invalid(f"{_AT}.schedulingPolicy", None, why)
        write = Write(self._features, update=old is not None)
        yield from struct_errors(_SPEC, "spec", spec, old, write=write)
