"""Kinds that only hold something for others: pod templates, revisions, endpoints, API services."""

from __future__ import annotations

from typing import Any

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.registry.pods.defaults import default_template_spec
from gpusched.devcluster.registry.pods.validation import spec_errors
from gpusched.devcluster.registry.strategy import Strategy

Obj = dict[str, Any]


class PodTemplateStrategy(Strategy):
    """Templates of pods by themselves."""

    generation = True
    returns_object = True

    def default(self, obj: Obj) -> None:
        """Fill in the defaults that pods and templates share."""
        template = obj.setdefault("template", {})
        template["metadata"] = template.get("metadata") or {}
        default_template_spec(template.setdefault("spec", {}))

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check the template as a pod."""
        return spec_errors(obj["template"]["spec"], "template.spec")

    def raises_generation(self, new: Obj, old: Obj) -> bool:
        """Tell whether the template changed."""
        return bool(new["template"] != old["template"])


class ControllerRevisionStrategy(Strategy):
    """Revisions of a controller's object, whose data is immutable."""

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Refuse a change of the data."""
        if new.get("data") == old.get("data"):
            return []
        return [invalid("data", new.get("data"), "field is immutable")]


class EndpointsStrategy(Strategy):
    """Addresses behind a service, as clients wrote them."""

    def default(self, obj: Obj) -> None:
        """Ports are TCP unless they say otherwise."""
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")


class ApiServiceStrategy(Strategy):
    """Entries of served group versions, named ``VERSION.GROUP``."""

    segment_name = True
    returns_object = True
