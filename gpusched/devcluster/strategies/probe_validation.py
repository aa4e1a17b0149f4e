"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.field_errors import FieldError, forbidden, invalid, not_supported, required

Obj = dict[str, Any]

_PORT_MAX: Final = 65535
_PORT_NAME_MAX: Final = 15
_PORT_NAME: Final = re.compile(r"[-a-z0-9]+")
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_TEXT: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)
_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def port_problems(port: Any) -> list[str]:
    """Why a value is no port number or name, in the API server's order."""
    if isinstance(port, int):
        fits = 1 <= port <= _PORT_MAX
        return [] if fits else [f"must be between 1 and {_PORT_MAX}, inclusive"]
    problems = []
    if len(port) > _PORT_NAME_MAX:
        problems.append(f"must be no more than {_PORT_NAME_MAX} bytes")
    if not _PORT_NAME.fullmatch(port):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", port):
        problems.append("must contain at least one letter (a-z)")
    if "--" in port:
        problems.append("must not contain consecutive hyphens")
    if port.startswith("-") or port.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def probe_errors(container: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    """Check the three probes of a container."""
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(key)
        if probe is None:
            continue
        here = f"{at}.{key}"
        yield from _probe_errors(probe, here, spec=spec)
        grace = probe.get("terminationGracePeriodSeconds")
        if key == "readinessProbe":
            if grace is not None:
                why = "must not be set for readinessProbes"
                yield invalid(f"{here}.terminationGracePeriodSeconds", grace, why)
        elif probe.get("successThreshold") != 1:
            yield invalid(f"{here}.successThreshold", probe.get("successThreshold"), "must be 1")


def _probe_errors(probe: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    kinds = ("exec", "httpGet", "tcpSocket", "grpc")
    yield from _handler_errors(probe, at, kinds=kinds, spec=spec)
    for key in _COUNTS:
        if (probe.get(key) or 0) < 0:
            yield invalid(f"{at}.{key}", probe[key], "must be greater than or equal to 0")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(f"{at}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def lifecycle_errors(lifecycle: Obj | None, at: str, *, spec: Obj) -> Iterator[FieldError]:
    """Check the hooks of a container."""
    for key in ("postStart", "preStop"):
        hook = (lifecycle or {}).get(key)
        if hook is not None:
            kinds = ("exec", "httpGet", "tcpSocket", "sleep")
            yield from _handler_errors(hook, f"{at}.{key}", kinds=kinds, spec=spec)


def _handler_errors(
    handler: Obj, at: str, *, kinds: tuple[str, ...], spec: Obj
) -> Iterator[FieldError]:
    given = [key for key in kinds if handler.get(key) is not None]
    for i, key in enumerate(given):
        here = f"{at}.{key}"
        if i:
            yield forbidden(here, "may not specify more than 1 handler type")
        elif key == "exec":
            if not handler[key].get("command"):
                yield required(f"{here}.command")
        elif key == "httpGet":
            yield from _http_errors(handler[key], here)
        elif key == "sleep":
            yield from _sleep_errors(handler[key], here, spec=spec)
        else:
            yield from _port_errors(handler[key].get("port", 0), f"{here}.port")
    if not given:
        yield required(at, "must specify a handler type")


def _http_errors(http: Obj, at: str) -> Iterator[FieldError]:
    if not http.get("path"):
        yield required(f"{at}.path")
    yield from _port_errors(http.get("port", 0), f"{at}.port")
    if http.get("scheme") not in {"HTTP", "HTTPS"}:
        yield not_supported(f"{at}.scheme", http.get("scheme") or "", ("HTTP", "HTTPS"))
    for header in http.get("httpHeaders") or ():
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            yield invalid(f"{at}.httpHeaders", name, _HEADER_TEXT)


def _port_errors(port: Any, at: str) -> Iterator[FieldError]:
    for why in port_problems(port):
        yield invalid(at, port, why)


def _sleep_errors(sleep: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    seconds, grace = sleep.get("seconds") or 0, spec.get("terminationGracePeriodSeconds", 30)
    if not 0 <= seconds <= grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(at, seconds, why)
