"""The file of one decision: what it was made of, and what it was.

Three lines of JSON, compressed: a header with versions and sums, everything that ``decide`` reads
(``io.graph_codec``), and the plan as ``io.canonical`` writes it. Reading runs nothing of the file.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpusched import __version__
from gpusched.api.meta.identity import format_micro_time
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import DECISION_BYTES_MAX
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.io.decisions import entity_codec
from gpusched.io.decisions.plan_json import canonical_json, plan_as_json
from gpusched.pluginhost.guard import FailingHook
from gpusched.session.state.plan import Plan

FORMAT: Final = 1
"""Of the files that are written; no other is read."""
SUFFIX: Final = ".decision.gz"
_GZIP: Final = b"\x1f\x8b"
_COMPRESSION: Final = 3


@frozen(kw_only=True)
class RecordedSearch:
    """One search of a decision.

    Attributes:
        job: tag of its type.
        answer: what it came to; None where there was a fault.
        fault: the sentence of ``SolverFault``, empty for none.
    """

    job: str
    answer: object = None
    fault: str = ""


@frozen(kw_only=True, eq=False)
class DecisionInputs:
    """All that a decision is made of.

    Attributes:
        failing: hooks that had failed before, see ``pluginhost.guard``.
        searches: in the order in which they were begun: one that is stopped early was stopped by a clock.
    """

    snapshot: Snapshot
    config: Config
    failing: tuple[FailingHook, ...] = ()
    searches: tuple[RecordedSearch, ...] = ()


class DecisionHeader(Struct, kw_only=True, rename="camel"):
    """Line 1.

    Attributes:
        gpusched_decision: the format.
        gpusched, python, ortools, numpy: versions of what decided.
        at: when, RFC 3339.
        plan: SHA-256 of line 3.
        inputs: SHA-256 of line 2.
        faults: sentences about plugins that failed in this decision.
        skipped: decisions between the file before and this one that were not recorded.
    """

    gpusched_decision: int
    gpusched: str
    python: str
    ortools: str
    numpy: str
    at: str
    revision: int
    gangs: int
    nodes: int
    config: str
    plan: str
    inputs: str
    faults: list[str] = []
    skipped: int = 0


class _FormatMark(Struct, rename="camel"):
    gpusched_decision: int


@frozen(kw_only=True)
class DecisionFile:
    """A decision that was read.

    Attributes:
        plan: line 3 as it is.
    """

    path: str
    header: DecisionHeader
    inputs: DecisionInputs
    plan: bytes

    @property
    def decided(self) -> dict[str, Any]:
        """The plan as JSON values."""
        found: dict[str, Any] = json.loads(self.plan)
        return found


@cache
def component_versions() -> dict[str, str]:
    """Of what takes part in a decision, by name."""
    return {
        "gpusched": __version__,
        "python": platform.python_version(),
        "ortools": version("ortools"),
        "numpy": version("numpy"),
    }


# -- writing -----------------------------------------------------------------------------------
def pack_decision(
    inputs: DecisionInputs, plan: Plan, *, faults: tuple[str, ...] = (), skipped: int = 0
) -> bytes:
    """The content of a file; see ``Header`` for ``faults`` and ``skipped``.

    Raises:
        Unrecordable: something in the inputs is no data.
    """
    snapshot = inputs.snapshot
    document = entity_codec.encode(
        (
            snapshot,
            inputs.config,
            tuple(
                (each.plugin, each.hook, each.in_a_row, each.why, each.part)
                for each in inputs.failing
            ),
            tuple((each.job, each.answer, each.fault) for each in inputs.searches),
        )
    )
    body, decided = msgspec.json.encode(document), canonical_json(plan_as_json(plan))
    header = DecisionHeader(
        gpusched_decision=FORMAT,
        **component_versions(),
        at=format_micro_time(snapshot.now),
        revision=snapshot.revision,
        gangs=len(snapshot.gangs),
        nodes=len(snapshot.nodes),
        config=inputs.config.digest or inputs.config.source,
        plan=hashlib.sha256(decided).hexdigest(),
        inputs=hashlib.sha256(body).hexdigest(),
        faults=list(faults),
        skipped=skipped,
    )
    whole = b"\n".join((msgspec.json.encode(header), body, decided, b""))
    return gzip.compress(whole, _COMPRESSION, mtime=0)


# -- reading -----------------------------------------------------------------------------------
def read_decision(path: str | Path) -> DecisionFile:
    """Read a file.

    Raises:
        ConfigError: with the file: it cannot be opened, is no decision, is of another format,
            is cut off or damaged, or was written by a version whose objects are others.
    """
    name = str(path)
    header, body, plan = _lines(_content(name), name)
    for line, raw, digest in ((2, body, header.inputs), (3, plan, header.plan)):
        if hashlib.sha256(raw).hexdigest() != digest:
            raise ConfigError(
                f"{name}:{line}: the file is damaged: this line has another sum than line 1 says"
            )
    try:
        root = entity_codec.decode(msgspec.json.decode(body))
        inputs = _inputs(root)
    except (entity_codec.UnreadableGraph, msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(
            f"{name}:2: what the decision was made of cannot be read: {error} (written by "
            f"gpusched {header.gpusched}, this is {__version__})"
        ) from error
    return DecisionFile(path=name, header=header, inputs=inputs, plan=plan)


def _content(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            if file.read(len(_GZIP)) != _GZIP:
                raise _no_decision(name)
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as unpacked:
                content = unpacked.read(DECISION_BYTES_MAX + 1)
    except EOFError:
        raise ConfigError(
            f"{name}: the file is cut off: its compressed content ends early"
        ) from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{name}: the file is damaged: {error}") from error
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error
    if len(content) > DECISION_BYTES_MAX:
        raise ConfigError(f"{name}: holds more than {DECISION_BYTES_MAX:,} bytes")
    return content


def _lines(content: bytes, name: str) -> tuple[DecisionHeader, bytes, bytes]:
    raw, _, rest = content.partition(b"\n")
    try:
        mark = msgspec.json.decode(raw, type=_FormatMark)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _no_decision(name) from None
    if mark.gpusched_decision != FORMAT:
        raise ConfigError(
            f"{name}:1: this is a decision of format {mark.gpusched_decision}; this version of "
            f"gpusched reads format {FORMAT}"
        )
    try:
        header = msgspec.json.decode(raw, type=DecisionHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}:1: the header is damaged: {error}") from error
    lines = rest.split(b"\n")
    if len(lines) != 3 or lines[2]:
        raise ConfigError(f"{name}: the file is damaged: it has {1 + len(lines)} lines, not 4")
    return header, lines[0], lines[1]


def _no_decision(name: str) -> ConfigError:
    return ConfigError(
        f"{name}: this is no recorded decision; gpusched run --record-decisions DIR writes them"
    )


def _inputs(root: Any) -> DecisionInputs:
    """Raises UnreadableGraph where the root is something else."""
    try:
        snapshot, config, failing, searches = root
        inputs = DecisionInputs(
            snapshot=snapshot,
            config=config,
            failing=tuple(FailingHook(*each) for each in failing),
            searches=tuple(
                RecordedSearch(job=job, answer=answer, fault=fault)
                for job, answer, fault in searches
            ),
        )
    except (TypeError, ValueError) as error:
        raise entity_codec.UnreadableGraph(f"damaged: {error}") from error
    if not (isinstance(snapshot, Snapshot) and isinstance(config, Config)):
        raise entity_codec.UnreadableGraph("damaged: it is no cluster with a configuration")
    return inputs
