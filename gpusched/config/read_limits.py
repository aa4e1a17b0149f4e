"""The sections ``limits``, ``clientConnection`` and ``history``: bounds that an operator tunes, with their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.api.meta.duration import NANOSECONDS
from gpusched.config.model import (
    DEFAULT_CLIENT_CONNECTION,
    DEFAULT_LIMITS,
    ClientConnectionConfig,
    HistoryConfig,
    LimitsConfig,
)
from gpusched.config.section import ConfigSection
from gpusched.config.values import BadValueError, seconds, whole_number
from gpusched.config.yaml_tree import ConfigProblems, YamlNode, describe_value

_QPS_MAX: Final = 20_000
"""Requests a second: several times what an API server of a large cluster serves."""
_CONNECTIONS_MIN: Final = 16
"""Every kind is followed on a connection of its own."""
_CONNECTIONS_MAX: Final = 1_000
_RESERVATIONS_MAX: Final = 1_000
_SESSION_WORK_MAX: Final = 10_000_000
"""Some ten seconds of one action: beyond, no session would end before its maxPeriod."""
_DAY_S: Final = 86_400
_HISTORY_ROWS_MAX: Final = 20_000_000
"""Some 7 GB of history."""

_Seconds = Callable[[YamlNode, str, ConfigProblems], float]
_Reader = Callable[[YamlNode, str, ConfigProblems], Any]


def _span(low_s: int, high_s: int) -> _Seconds:
    return seconds(low=low_s * NANOSECONDS, high=high_s * NANOSECONDS)


_FIELDS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "binds_in_flight": ("bindsInFlight", whole_number(low=1, high=1024)),
    "evictions_in_flight": ("evictionsInFlight", whole_number(low=1, high=256)),
    "status_writes_in_flight": ("statusWritesInFlight", whole_number(low=1, high=256)),
    "events_in_flight": ("eventsInFlight", whole_number(low=1, high=64)),
    "preemptions_in_flight": ("preemptionsInFlight", whole_number(low=1, high=256)),
    "preemption_timeout_s": ("preemptionTimeout", _span(5, 3600)),
    "admitted_timeout_s": ("admittedTimeout", _span(10, _DAY_S)),
    "pod_arrival_timeout_s": ("podArrivalTimeout", _span(5, 3600)),
    "repair_timeout_s": ("repairTimeout", _span(0, _DAY_S)),
    "reservations": ("reservations", whole_number(low=0, high=_RESERVATIONS_MAX)),
    "reservation_window_s": ("reservationWindow", _span(60, 30 * _DAY_S)),
    "cache_staleness_s": ("cacheStaleness", _span(5, 600)),
    "audit_period_s": ("auditPeriod", _span(10, _DAY_S)),
    "binds_per_session": ("bindsPerSession", whole_number(low=10, high=50_000)),
    "evictions_per_session": ("evictionsPerSession", whole_number(low=1, high=50_000)),
    "session_work": ("sessionWork", whole_number(low=1_000, high=_SESSION_WORK_MAX)),
    "victim_work": ("victimWork", whole_number(low=1_000, high=_SESSION_WORK_MAX)),
    "start_estimates": ("startEstimates", whole_number(low=0, high=_RESERVATIONS_MAX)),
    "nomination_timeout_s": ("nominationTimeout", _span(30, 3600)),
    "move_pause_s": ("movePause", _span(60, 30 * _DAY_S)),
    "eviction_window_s": ("evictionWindow", _span(0, _DAY_S)),
    "volume_timeout_s": ("volumeTimeout", _span(30, _DAY_S)),
    "decision_line_rate": ("decisionLineRate", whole_number(low=0, high=10_000)),
}
"""Fields of ``LimitsConfig``: their names in the file, and what they may be."""


def read_limits(node: YamlNode, name: str, problems: ConfigProblems) -> LimitsConfig:
    """The section ``limits``, with what is left out as it is by default."""
    default = DEFAULT_LIMITS
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return default
    values = {
        field: section.read(key, reader, default=getattr(default, field))
        for field, (key, reader) in _FIELDS.items()
    }
    section.finish()
    return LimitsConfig(**values)


def read_client_connection(
    node: YamlNode, name: str, problems: ConfigProblems
) -> ClientConnectionConfig:
    """The section ``clientConnection``, with what is left out as it is by default."""
    default = DEFAULT_CLIENT_CONNECTION
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return default
    connection = ClientConnectionConfig(
        qps=section.read("qps", whole_number(low=10, high=_QPS_MAX), default=default.qps),
        max_connections=section.read(
            "maxConnections",
            whole_number(low=_CONNECTIONS_MIN, high=_CONNECTIONS_MAX),
            default=default.max_connections,
        ),
    )
    section.finish()
    return connection


def read_history(node: YamlNode, name: str, problems: ConfigProblems) -> HistoryConfig:
    """The section ``history``, with what is left out as it is by default."""
    default = HistoryConfig()
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return default
    history = HistoryConfig(
        file=section.read("file", _file_name, default=default.file),
        keep_s=section.read("keep", _span(3600, 3660 * _DAY_S), default=default.keep_s),
        max_rows=section.read(
            "maxRows", whole_number(low=1_000, high=_HISTORY_ROWS_MAX), default=default.max_rows
        ),
    )
    section.finish()
    return history


def _file_name(node: YamlNode, name: str, _: ConfigProblems) -> str:
    if isinstance(node.value, str) and "\0" not in node.value:
        return node.value
    raise BadValueError(node.line, f"{name} must be the path of a file, not {describe_value(node)}")
