"""``/v1/openapi.json``: the API described from the very types that are written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from gpusched import __version__
from gpusched.io.history.past_runs import PastRun, PastSum
from gpusched.io.serve.answers.served_history import PARAMETERS
from gpusched.view.gang_story import GangStory
from gpusched.view.model import (
    AboutView,
    DecisionView,
    GangView,
    MemberView,
    NodeView,
    OrderView,
    PriorityView,
    QueueView,
)
from gpusched.view.over_time.advice_view import AdviceView
from gpusched.view.over_time.future import RoomView, SpanView
from gpusched.view.over_time.queue_series import QueueSeriesView
from gpusched.view.over_time.submission_view import (
    VARIED,
    SubmissionVariantsView,
    SubmissionView,
)

_PARTS: Final = (
    AboutView, GangView, GangStory, MemberView, NodeView, QueueView, QueueSeriesView, RoomView, SpanView,
    DecisionView, AdviceView, SubmissionView, SubmissionVariantsView, PastRun, PastSum, OrderView, PriorityView,
)  # fmt: skip
_PLACE: Final = "#/components/schemas/"
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_LISTS: Final = {
    "gangs": (GangView, "Gangs that wait or run, by namespace, kind and name."),
    "nodes": (NodeView, "Nodes with each GPU and who holds it, by name."),
    "queues": (QueueView, "Queues by name."),
    "priority": (
        PriorityView,
        "Gangs that wait, in the order of their turns, then those without one.",
    ),
    "future": (SpanView, "Known ends, reserved room, estimated starts and Reservations, by time."),
    "decisions": (DecisionView, "The last decisions, oldest first."),
}
_PARAMETERS: Final = {
    "gangs": ("namespace", "queue", "state", "limit", "continue"),
    "nodes": ("limit", "continue"),
    "priority": ("namespace", "queue", "limit", "continue"),
}
_MEANINGS: Final = {
    **dict.fromkeys(VARIED, ""),
    "namespace": "only of this namespace",
    "queue": "only of this queue",
    "state": "only in this state: Waiting, Starting, Running or Ending; of history Waiting, Running "
    "or how it ended",
    "user": "only of this user, where users are known",
    "until": "what began later is left out: a time of RFC 3339",
    "by": "sums by queue, namespace, user, gpu-type or day in place of runs",
    "limit": "items a page, 500 unless told, 1000 at most",
    "continue": "what the page before said under this name",
    "since": "the revision that is shown already; of history a time, before which it is left out",
}


@lru_cache(maxsize=1)
def describe_view_api() -> dict[str, Any]:
    """OpenAPI 3.1 of everything under ``/v1``."""
    _, schemas = msgspec.json.schema_components(_PARTS, ref_template=_PLACE + "{name}")
    paths: dict[str, Any] = {
        "/v1": _get(
            "What this server is, and what the user may see.", {"$ref": _PLACE + "AboutView"}
        ),
        **_one_gang(),
        "/v1/changes": {
            "get": {
                "summary": "What changes, as server-sent events: gangs, nodes, queues, gone, "
                "decision, moment, and reset where everything is to be read again.",
                "parameters": [_parameter("since")],
                "responses": {
                    "200": {"description": "events", "content": {"text/event-stream": {}}},
                    "default": {"$ref": "#/components/responses/Refusal"},
                },
            }
        },
    }
    for name, (part, summary) in _LISTS.items():
        paths[f"/v1/{name}"] = _get(
            summary, _list_schema(part.__name__), query=_PARAMETERS.get(name, ())
        )
    paths["/v1/when"] = _when()
    paths["/v1/queues/series"] = _queue_series()
    paths["/v1/history"] = _get(
        "What became of gangs: runs, the latest end first, or their sums.",
        {
            "type": "object",
            "required": ["kind", "items"],
            "properties": {
                "kind": _TEXT,
                "continue": _TEXT,
                "items": {"oneOf": [_array("PastRun"), _array("PastSum")]},
            },
        },
        query=PARAMETERS,
    )
    for each in paths["/v1/history"]["get"]["parameters"]:
        each["schema"] = _NUMBER if each["name"] == "limit" else _TEXT  # since is a time here
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpusched view", "version": __version__},
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Status": _status_schema()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Refusal": {
                    "description": "why there is no answer",
                    "content": {"application/json": {"schema": {"$ref": _PLACE + "Status"}}},
                }
            },
        },
    }


def _one_gang() -> dict[str, Any]:
    name, path = "/v1/gangs/{namespace}/{kind}/{name}", ("namespace", "kind", "name")
    story = "One gang with its pods and what was decided about it."
    advice = "What would let a gang start that waits, decided on a copy of the cluster."
    return {
        name: _get(story, {"$ref": _PLACE + "GangStory"}, path=path),
        f"{name}/advice": _get(advice, {"$ref": _PLACE + "AdviceView"}, path=path),
    }


def _when() -> dict[str, Any]:
    told = _get(
        "When manifests would start if they were submitted now, decided on a copy of the cluster.",
        {
            "oneOf": [
                {"$ref": _PLACE + "SubmissionView"},
                {"$ref": _PLACE + "SubmissionVariantsView"},
            ]
        },
        query=("namespace", *VARIED),
    )["get"]
    said = {"namespace": "of manifests that name none; default unless told"} | dict.fromkeys(
        VARIED, "values with commas: variants of all combinations are answered, the best first"
    )
    for each in told["parameters"]:
        each["description"] = said[each["name"]]
    yaml = {"application/yaml": {"schema": _TEXT}}
    body = {"required": True, "description": "manifests, YAML or JSON", "content": yaml}
    return {"post": {**told, "requestBody": body}}


def _queue_series() -> dict[str, Any]:
    schema = _list_schema("QueueSeriesView")
    schema["required"] += ["times", "periodSeconds"]
    schema["properties"] |= {
        "times": {"type": "array", "items": _TEXT, "description": "of samples, oldest first"},
        "periodSeconds": {**_NUMBER, "description": "between two samples"},
    }
    told = _get(
        "GPUs of queues over the last day, a sample a minute since this daemon tells it.",
        schema,
        query=("queue", "limit", "continue"),
    )
    queue, limit, _ = told["get"]["parameters"]
    queue |= {
        "description": "only these queues: may be said several times",
        "schema": {"type": "array", "items": _TEXT},
    }
    limit["description"] = "queues a page, 50 at most"
    return told


def _get(
    summary: str, schema: dict[str, Any], *, query: tuple[str, ...] = (), path: tuple[str, ...] = ()
) -> dict[str, Any]:
    parameters = [_parameter(name) for name in query]
    parameters += [{"name": n, "in": "path", "required": True, "schema": _TEXT} for n in path]
    return {
        "get": {
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {
                    "description": "as it is now",
                    "content": {"application/json": {"schema": schema}},
                },
                "default": {"$ref": "#/components/responses/Refusal"},
            },
        }
    }


def _parameter(name: str) -> dict[str, Any]:
    schema = _NUMBER if name in {"limit", "since"} else _TEXT
    return {"name": name, "in": "query", "description": _MEANINGS[name], "schema": schema}


def _array(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": _PLACE + name}}


def _list_schema(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["kind", "revision", "continue", "total", "items"],
        "properties": {
            "kind": _TEXT,
            "revision": _NUMBER,
            "continue": _TEXT,
            "total": _NUMBER,
            "items": _array(name),
        },
    }


def _status_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["kind", "code", "reason", "message"],
        "properties": {"kind": _TEXT, "code": _NUMBER, "reason": _TEXT, "message": _TEXT},
    }
