"""Spans: nothing unless the standard OTEL_* variables ask for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from gpusched import __version__
from gpusched.base import limits
from gpusched.base.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

Attribute = str | int | float | bool
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing:
    """One span a cycle, child spans an action and a gang; off by default and then free.

    Args:
        exporter: where spans go; None for nowhere.
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        if exporter is not None:
            self._provider = _tracer_provider(exporter)
            self._tracer = self._provider.get_tracer("gpusched", __version__)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Tracing:
        """As the OTEL_* variables say.

        Raises:
            ConfigError: an exporter is asked for that gpusched does not have.
        """
        variables = os.environ if environ is None else environ
        asked = variables.get("OTEL_TRACES_EXPORTER", "").strip().lower()
        if asked not in {"", "none", "otlp"}:
            raise ConfigError(
                f'OTEL_TRACES_EXPORTER is "{asked}"; gpusched knows otlp (over HTTP) and none'
            )
        disabled = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        wanted = asked == "otlp" or (not asked and any(variables.get(e) for e in _ENDPOINTS))
        return cls(_otlp_exporter() if wanted and not disabled else None)

    @property
    def on(self) -> bool:
        """Whether spans go anywhere."""
        return self._tracer is not None

    def span(self, name: str, **attributes: Attribute) -> AbstractContextManager[object]:
        """A span around a block; a child of the span around it."""
        if self._tracer is None:
            return nullcontext()
        return self._current(name, attributes)

    def finished(self, name: str, *, began: float, ended: float, **attributes: Attribute) -> None:
        """A span of something measured elsewhere, as child of the current one.

        Args:
            name: of the span.
            began: seconds since the Unix epoch.
            ended: likewise.
            attributes: of the span.
        """
        if self._tracer is not None:
            span = self._tracer.start_span(name, attributes=attributes, start_time=int(began * 1e9))
            span.end(int(ended * 1e9))

    def shutdown(self) -> None:
        """Send what waits, as far as the collector answers, and stop the thread."""
        if self._provider is not None:
            self._provider.shutdown()

    @contextmanager
    def _current(self, name: str, attributes: Mapping[str, Attribute]) -> Iterator[object]:
        assert self._tracer is not None
        with self._tracer.start_as_current_span(name, attributes=dict(attributes)) as span:
            yield span


# Each import below is made when spans are asked for: 70 modules and 5 MiB that few daemons need.


def _otlp_exporter() -> SpanExporter:
    """The exporter that the OTEL_* variables describe."""
    from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415 - as above

    return trace_exporter.OTLPSpanExporter()


def _tracer_provider(exporter: SpanExporter) -> TracerProvider:
    """What makes spans of the daemon and hands them to an exporter."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    resource = Resource.create({"service.name": "gpusched", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=limits.SPANS_QUEUED_MAX)
    )
    return provider
