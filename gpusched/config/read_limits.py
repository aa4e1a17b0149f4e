"""The sections ``limits`` and ``clientConnection``: bounds that an operator tunes, with their ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpusched.api.meta.duration import NANOSECONDS
from gpusched.config.model import (
    DEFAULT_CLIENT_CONNECTION,
    DEFAULT_LIMITS,
    ClientConnectionConfig,
    LimitsConfig,
)
from gpusched.config.section import ConfigSection
from gpusched.config.values import seconds, whole_number
from gpusched.config.yaml_tree import ConfigProblems, YamlNode

_QPS_MAX: Final = 20_000
"""Requests a second: several times what an API server of a large cluster serves."""
_CONNECTIONS_MIN: Final = 16
"""Every kind is followed on a connection of its own."""
_CONNECTIONS_MAX: Final = 1_000
_RESERVATIONS_MAX: Final = 1_000
_SESSION_WORK_MAX: Final = 10_000_000
"""Some ten seconds of one action: beyond, no session would end before its maxPeriod."""
_DAY_S: Final = 86_400

_Seconds = Callable[[YamlNode, str, ConfigProblems], float]


def _span(low_s: int, high_s: int) -> _Seconds:
    return seconds(low=low_s * NANOSECONDS, high=high_s * NANOSECONDS)


def read_limits(node: YamlNode, name: str, problems: ConfigProblems) -> LimitsConfig:
    """The section ``limits``, with what is left out as it is by default."""
    default = DEFAULT_LIMITS
    section = ConfigSection.from_node(node, name, problems)
    if section is None:
        return default
    read = section.read
    limits = LimitsConfig(
        binds_in_flight=read(
            "bindsInFlight", whole_number(low=1, high=1024), default=default.binds_in_flight
        ),
        evictions_in_flight=read(
            "evictionsInFlight", whole_number(low=1, high=256), default=default.evictions_in_flight
        ),
        status_writes_in_flight=read(
            "statusWritesInFlight",
            whole_number(low=1, high=256),
            default=default.status_writes_in_flight,
        ),
        events_in_flight=read(
            "eventsInFlight", whole_number(low=1, high=64), default=default.events_in_flight
        ),
        preemptions_in_flight=read(
            "preemptionsInFlight",
            whole_number(low=1, high=256),
            default=default.preemptions_in_flight,
        ),
        preemption_timeout_s=read(
            "preemptionTimeout", _span(5, 3600), default=default.preemption_timeout_s
        ),
        admitted_timeout_s=read(
            "admittedTimeout", _span(10, _DAY_S), default=default.admitted_timeout_s
        ),
        pod_arrival_timeout_s=read(
            "podArrivalTimeout", _span(5, 3600), default=default.pod_arrival_timeout_s
        ),
        repair_timeout_s=read("repairTimeout", _span(0, _DAY_S), default=default.repair_timeout_s),
        reservations=read(
            "reservations",
            whole_number(low=0, high=_RESERVATIONS_MAX),
            default=default.reservations,
        ),
        reservation_window_s=read(
            "reservationWindow", _span(60, 30 * _DAY_S), default=default.reservation_window_s
        ),
        cache_staleness_s=read("cacheStaleness", _span(5, 600), default=default.cache_staleness_s),
        audit_period_s=read("auditPeriod", _span(10, _DAY_S), default=default.audit_period_s),
        binds_per_session=read(
            "bindsPerSession", whole_number(low=10, high=50_000), default=default.binds_per_session
        ),
        evictions_per_session=read(
            "evictionsPerSession",
            whole_number(low=1, high=50_000),
            default=default.evictions_per_session,
        ),
        session_work=read(
            "sessionWork",
            whole_number(low=1_000, high=_SESSION_WORK_MAX),
            default=default.session_work,
        ),
        victim_work=read(
            "victimWork",
            whole_number(low=1_000, high=_SESSION_WORK_MAX),
            default=default.victim_work,
        ),
        start_estimates=read(
            "startEstimates",
            whole_number(low=0, high=_RESERVATIONS_MAX),
            default=default.start_estimates,
        ),
        nomination_timeout_s=read(
            "nominationTimeout", _span(30, 3600), default=default.nomination_timeout_s
        ),
        move_pause_s=read("movePause", _span(60, 30 * _DAY_S), default=default.move_pause_s),
        volume_timeout_s=read("volumeTimeout", _span(30, _DAY_S), default=default.volume_timeout_s),
    )
    section.finish()
    return limits


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
