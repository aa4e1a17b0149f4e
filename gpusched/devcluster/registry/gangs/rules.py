"""The rules of Workload, PodGroup and CompositePodGroup, as each release declares them."""

from __future__ import annotations

from typing import Final

from gpusched.devcluster.registry.gangs.declarative import (
    Field,
    Struct,
    at_least_one,
    label_key,
    long_name,
    one_of,
    path_segment,
    short_name,
    user_priority,
)
from gpusched.devcluster.registry.gangs.features import (
    COMPOSITE,
    PREEMPTION,
    PREEMPTION_POLICY,
    TOPOLOGY,
)

_TOPOLOGY: Final = Struct((Field(name="key", presence="required", tests=(label_key,)),))
CONSTRAINTS: Final = Struct((Field(name="topology", most=1, struct=_TOPOLOGY),))
CLAIM: Final = Struct(
    (
        Field(name="name", presence="required", tests=(short_name,)),
        Field(name="resourceClaimName", pointer=True, tests=(long_name,)),
        Field(name="resourceClaimTemplateName", pointer=True, tests=(long_name,)),
    ),
    union=("resourceClaimName", "resourceClaimTemplateName"),
)
_CONTROLLER: Final = Struct(
    (
        Field(name="apiGroup", tests=(long_name,)),
        Field(name="kind", presence="required", tests=(path_segment,)),
        Field(name="name", presence="required", tests=(path_segment,)),
    )
)
_MIN_COUNT: Final = Struct((Field(name="minCount", presence="required", tests=(at_least_one,)),))
_MIN_GROUPS: Final = Struct(
    (Field(name="minGroupCount", presence="required", tests=(at_least_one,)),)
)
CLAIM_STATUSES: Final = Field(
    name="resourceClaimStatuses",
    most=4,
    key="name",
    struct=Struct(
        (Field(name="name"), Field(name="resourceClaimName", pointer=True, tests=(long_name,)))
    ),
)
"""The part of a group's status that has rules of its own, in every release."""


def _claims(*, immutable: bool) -> Field:
    return Field(name="resourceClaims", immutable=immutable, most=4, key="name", struct=CLAIM)


def _priority(*, immutable: bool, gate: str = "") -> tuple[Field, Field]:
    return (
        Field(name="priorityClassName", immutable=immutable, gate=gate, tests=(long_name,)),
        Field(
            name="priority",
            pointer=True,
            immutable=immutable,
            gate=gate,
            tests=(user_priority,),
        ),
    )


# -- Kubernetes 1.36: v1alpha2 -------------------------------------------------------------------

_POLICY_136: Final = Struct(
    (Field(name="basic"), Field(name="gang", struct=_MIN_COUNT)), union=("basic", "gang")
)
_MODE_136: Final = one_of("Pod", "PodGroup")
_TEMPLATE_REF: Final = Struct(
    (
        Field(
            name="workload",
            struct=Struct(
                (
                    Field(name="workloadName", presence="required", tests=(long_name,)),
                    Field(name="podGroupTemplateName", presence="required", tests=(short_name,)),
                )
            ),
        ),
    ),
    union=("workload",),
)
POD_GROUP_136: Final = Struct(
    (
        Field(name="podGroupTemplateRef", immutable=True, struct=_TEMPLATE_REF, printed=True),
        Field(name="schedulingPolicy", presence="any", immutable=True, struct=_POLICY_136),
        Field(name="schedulingConstraints", immutable=True, gate=TOPOLOGY, struct=CONSTRAINTS),
        _claims(immutable=True),
        Field(
            name="disruptionMode",
            presence="required",
            pointer=True,
            immutable=True,
            gate=PREEMPTION,
            tests=(_MODE_136,),
        ),
        *_priority(immutable=True, gate=PREEMPTION),
    )
)
_TEMPLATE_136: Final = Struct(
    (
        Field(name="name", presence="required", tests=(short_name,)),
        Field(name="schedulingPolicy", presence="any", struct=_POLICY_136),
        Field(name="schedulingConstraints", gate=TOPOLOGY, struct=CONSTRAINTS, printed=True),
        _claims(immutable=True),
        Field(name="disruptionMode", pointer=True, gate=PREEMPTION, tests=(_MODE_136,)),
        *_priority(immutable=False, gate=PREEMPTION),
    )
)
WORKLOAD_136: Final = Struct(
    (
        Field(name="controllerRef", immutable=True, struct=_CONTROLLER),
        Field(
            name="podGroupTemplates",
            presence="required",
            immutable=True,
            most=8,
            key="name",
            struct=_TEMPLATE_136,
            printed=True,
        ),
    )
)

# -- Kubernetes 1.37: v1beta1 and v1alpha3 -------------------------------------------------------

MODE_137: Final = Struct((Field(name="single"), Field(name="all")), union=("single", "all"))
_POLICY_137: Final = Struct(
    (Field(name="basic", immutable=True), Field(name="gang", kept=True, struct=_MIN_COUNT)),
    union=("basic", "gang"),
)
_COMPOSITE_POLICY: Final = Struct(
    (Field(name="basic", immutable=True), Field(name="gang", kept=True, struct=_MIN_GROUPS)),
    union=("basic", "gang"),
)
_WORKLOAD_REF: Final = Struct(
    (
        Field(name="workloadName", presence="required", tests=(long_name,)),
        Field(name="templateName", presence="required", tests=(short_name,)),
    )
)
_PREEMPTION_POLICY: Final = Field(
    name="preemptionPolicy",
    pointer=True,
    immutable=True,
    gate=PREEMPTION_POLICY,
    tests=(one_of("Never", "PreemptLowerPriority"),),
)
POD_GROUP_137: Final = Struct(
    (
        Field(
            name="parentCompositePodGroupName",
            pointer=True,
            immutable=True,
            gate=COMPOSITE,
            tests=(long_name,),
        ),
        Field(name="workloadRef", immutable=True, struct=_WORKLOAD_REF),
        Field(name="schedulingPolicy", presence="any", struct=_POLICY_137),
        Field(name="schedulingConstraints", immutable=True, gate=TOPOLOGY, struct=CONSTRAINTS),
        _claims(immutable=True),
        Field(name="disruptionMode", presence="required", immutable=True, struct=MODE_137),
        *_priority(immutable=True),
        _PREEMPTION_POLICY,
    )
)
_TEMPLATE_137: Final = Struct(
    (
        Field(name="name", presence="required", tests=(short_name,)),
        Field(name="schedulingPolicy", presence="any", struct=_POLICY_137),
        Field(
            name="schedulingConstraints",
            immutable=True,
            gate=TOPOLOGY,
            struct=CONSTRAINTS,
            printed=True,
        ),
        _claims(immutable=True),
        Field(name="disruptionMode", immutable=True, struct=MODE_137),
        *_priority(immutable=True),
        _PREEMPTION_POLICY,
    )
)
_COMPOSITE_TEMPLATE: Final = Struct()
_COMPOSITE_TEMPLATES: Final = Field(
    name="compositePodGroupTemplates",
    sealed=True,
    most=8,
    key="name",
    struct=_COMPOSITE_TEMPLATE,
)
_COMPOSITE_TEMPLATE.fields = (
    Field(name="name", presence="required", tests=(short_name,)),
    Field(name="schedulingPolicy", presence="any", struct=_COMPOSITE_POLICY),
    Field(name="schedulingConstraints", immutable=True, struct=CONSTRAINTS),
    Field(name="disruptionMode", immutable=True, struct=MODE_137),
    *_priority(immutable=True),
    _PREEMPTION_POLICY,
    Field(name="podGroupTemplates", sealed=True, most=8, key="name", struct=_TEMPLATE_137),
    _COMPOSITE_TEMPLATES,
)
WORKLOAD_137: Final = Struct(
    (
        Field(name="controllerRef", immutable=True, struct=_CONTROLLER),
        Field(
            name="podGroupTemplates",
            sealed=True,
            most=8,
            key="name",
            struct=_TEMPLATE_137,
            printed=True,
        ),
        Field(
            name="compositePodGroupTemplates",
            gate=COMPOSITE,
            sealed=True,
            most=8,
            key="name",
            struct=_COMPOSITE_TEMPLATE,
        ),
    ),
    union=("podGroupTemplates", "compositePodGroupTemplates"),
)
COMPOSITE_137: Final = Struct(
    (
        Field(name="parentCompositePodGroupName", pointer=True, immutable=True, tests=(long_name,)),
        Field(name="workloadRef", presence="required", immutable=True, struct=_WORKLOAD_REF),
        Field(name="schedulingPolicy", presence="any", immutable=True, struct=_COMPOSITE_POLICY),
        Field(name="schedulingConstraints", immutable=True, struct=CONSTRAINTS),
        Field(name="disruptionMode", presence="required", immutable=True, struct=MODE_137),
        *_priority(immutable=True),
        _PREEMPTION_POLICY,
    )
)
