"""How a pod's status is printed: fields that a client leaves out but the server always shows."""

from __future__ import annotations

from typing import Any, Final

Obj = dict[str, Any]

_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_TIMES: Final = {"running": ("startedAt",), "terminated": ("startedAt", "finishedAt")}


def default_status(status: Obj) -> None:
    """Complete a shallow copy of a status; what it shares with others is left alone."""
    if conditions := status.get("conditions"):
        status["conditions"] = [
            {"lastProbeTime": None, "lastTransitionTime": None, **c} for c in conditions
        ]
    for key in _STATUSES:
        if statuses := status.get(key):
            status[key] = [_container_status(s) for s in statuses]
    _default_addresses(status)


def _default_addresses(status: Obj) -> None:
    """One address and the list of addresses say the same; the single one counts."""
    one, many = status.get("podIP"), status.get("podIPs")
    if one and (not many or many[0].get("ip") != one):
        status["podIPs"] = [{"ip": one}]
    elif many and not one:
        status["podIP"] = many[0].get("ip")


def _container_status(status: Obj) -> Obj:
    plain: Obj = {
        "name": "",
        "state": {},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        **status,
    }
    for key in ("state", "lastState"):
        plain[key] = _state(plain[key] or {})
    return plain


def _state(state: Obj) -> Obj:
    full: Obj = {}
    for key, details in state.items():
        times = dict.fromkeys(_TIMES.get(key, ()))
        code = {"exitCode": 0} if key == "terminated" else {}
        full[key] = {**code, **times, **(details or {})}
    return full
