"""``gpusched run``: the daemon."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import secrets
import signal
import tempfile
from logging import getLevelNamesMapping
from pathlib import Path
from typing import Final

from gpusched.advice.service import answering_program
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer.requests import ObjectRef
from gpusched.app import App, AppOptions
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.command import Subparsers
from gpusched.config.load import configuration_path, load_file
from gpusched.config.model import DEFAULT, Config, HistoryConfig
from gpusched.io.decisions.recorder import LAST, RecordingOptions
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.observe import logs, process_limits
from gpusched.io.observe.logs import set_up_logging
from gpusched.io.serve.publisher import ViewAddress

_PORT: Final = 8080
_VIEW_PORT: Final = 8081


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "run",
        description="Run the daemon until a signal comes. In a cluster it uses its service "
        "account, elsewhere a kubeconfig.",
    )
    parser.add_argument("--kubeconfig", metavar="F", help="default: in-cluster, $KUBECONFIG, home")
    parser.add_argument("--config", metavar="F", help="such as conf/gpusched.yaml")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="of /livez, /readyz and /metrics; port 0 takes any free one, 'none' serves none "
        "(default: 0.0.0.0:8080 in a cluster; elsewhere 127.0.0.1:8080, or any free port when "
        "that one is taken)",
    )
    parser.add_argument(
        "--view",
        metavar="HOST:PORT",
        help="of the view of what waits and runs, for gpusched get, the page and others, which a "
        "process of its own serves; port 0 takes any free one, 'none' serves none (default: "
        "0.0.0.0:8081 in a cluster; elsewhere 127.0.0.1:8081, or any free port when that one is taken)",
    )
    parser.add_argument(
        "--record-decisions",
        metavar="DIR",
        help="keep the last decisions there, each in a file that gpusched replay repeats",
    )
    parser.add_argument(
        "--record-last", metavar="N", type=int, default=LAST, help=f"how many (default: {LAST})"
    )
    parser.add_argument(
        "--record-all", action="store_true", help="sessions that changed nothing as well"
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        help="keep there what becomes of gangs, for gpusched get history; 'none' for no file "
        "(default: what the configuration says under history, which is none unless changed)",
    )
    parser.add_argument(
        "--state-file",
        metavar="F",
        help="remembers what a process died of, for the next one; 'none' for no file (default: one "
        "for this kubeconfig and configuration in the folder for temporary files)",
    )
    parser.add_argument(
        "--shard",
        metavar="NAME[,NAME]",
        help="shards of the configuration that this daemon cares for: the first is its own, the others it takes "
        "over while nobody holds them (default: all, in the order of the configuration)",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon; returns when it was asked to end.

    Raises:
        GpuschedError: it cannot start, or something broke.
    """
    set_up_logging(
        log_format=arguments.log_format,
        level=getLevelNamesMapping()[arguments.log_level.upper()],
        waits=False,
    )
    process_limits.raise_file_limit()
    process_limits.collect_no_garbage_yet()
    path = configuration_path(arguments.config)
    config = load_file(path) if path else DEFAULT
    history = _history(arguments.history, config.history)
    options = AppOptions(
        config=config,
        clock=SystemClock(),
        secret=secrets.token_bytes,
        rng=random.Random(secrets.randbits(64)),  # noqa: S311 - jitter and identity, no secret
        kubeconfig=arguments.kubeconfig,
        identity=_identity(),
        config_file=path or "",
        pod=_own_pod(),
        listen=_addresses(arguments.listen),
        view=_view_address(arguments.view, arguments.kubeconfig, history, path or ""),
        recording=_recording(arguments),
        history=history,
        on_listed=process_limits.leave_objects_alone,
        state_file=_state_file(arguments.state_file, arguments.kubeconfig, path, arguments.shard),
        shards=_shards(arguments.shard, config),
    )
    try:
        return asyncio.run(_serve(options))
    finally:
        logs.drain_log_queue()


async def _serve(options: AppOptions) -> int:
    app = App(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _ask_to_end, app)
    loop.add_signal_handler(signal.SIGHUP, app.reload)
    await app.run()
    return 0


def _ask_to_end(app: App) -> None:
    """The first signal ends in order, the second at once."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
    app.stop()


def _recording(arguments: argparse.Namespace) -> RecordingOptions | None:
    """Which decisions are kept, and where.

    Raises:
        UsageError: none of them, or of which nobody said where.
    """
    last: int = arguments.record_last
    if last < 1:
        raise UsageError(f"--record-last takes a number from 1, not {last}")
    if arguments.record_decisions is None:
        if arguments.record_all or last != LAST:
            raise UsageError("--record-all and --record-last need --record-decisions DIR")
        return None
    return RecordingOptions(
        folder=Path(arguments.record_decisions), last=last, everything=arguments.record_all
    )


def _history(named: str | None, config: HistoryConfig) -> HistoryOptions | None:
    """Where runs of gangs are kept, and for how long."""
    file = config.file if named is None else "" if named == "none" else named
    if not file:
        return None
    return HistoryOptions(file=Path(file), keep_s=config.keep_s, rows_max=config.max_rows)


def _shards(text: str | None, config: Config) -> tuple[str, ...]:
    """Shards that this daemon cares for, in their order.

    Raises:
        UsageError: the configuration has no such shard, or it is named twice.
    """
    known = [each.name for each in config.shards]
    if text is None:
        return tuple(known)
    if not known:
        raise UsageError("--shard needs shards in the configuration: add the section shards to it")
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise UsageError(
                f"--shard: the configuration has no shard {name!r}, but {', '.join(known)}"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"--shard names a shard twice: {text}")
    return names


def _state_file(named: str | None, *of: str | None) -> str:
    """Where this daemon remembers what it died of: two of one cluster and configuration share it.

    Args:
        named: by its user; None for a file of its own, ``none`` for no file.
        of: what tells this daemon from others of the same user.
    """
    if named is not None:
        return "" if named == "none" else named
    told = "\n".join((os.environ.get("HOME", ""), os.environ.get("KUBECONFIG", ""), *map(str, of)))
    name = hashlib.sha256(told.encode()).hexdigest()[:16]
    return str(Path(tempfile.gettempdir()) / f"gpusched-{os.getuid()}" / f"{name}.state")


def _identity() -> str:
    name = os.environ.get("POD_NAME") or os.uname().nodename
    uid = os.environ.get("POD_UID") or str(os.getpid())
    return f"{name}_{uid}"


def _own_pod() -> ObjectRef | None:
    """Our pod as the Deployment tells it; None outside a cluster."""
    name, namespace = os.environ.get("POD_NAME"), os.environ.get("POD_NAMESPACE")
    uid = os.environ.get("POD_UID")
    if not (name and namespace and uid):
        return None
    return ObjectRef("Pod", ObjectKey(namespace, name), UID(uid))


def _view_address(
    text: str | None, kubeconfig: str | None, history: HistoryOptions | None, config_file: str
) -> ViewAddress | None:
    """Where the view is served, and by whom questions are answered there; None for nowhere.

    Raises:
        UsageError: no host and port.
    """
    addresses = _addresses(text, option="--view", port=_VIEW_PORT)
    if not addresses:
        return None
    host = os.environ.get("POD_IP", "")
    return ViewAddress(
        addresses=addresses,
        kubeconfig=kubeconfig,
        host=host,
        history=str(history.file) if history is not None else "",
        answering=answering_program(kubeconfig, config_file),
    )


def _addresses(
    text: str | None, *, option: str = "--listen", port: int = _PORT
) -> tuple[tuple[str, int], ...]:
    """Where to listen: the first that is free. Only where nothing was asked for is there a choice.

    Raises:
        UsageError: no host and port.
    """
    if text is None:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            return (("0.0.0.0", port),)  # noqa: S104 - probes, the scraper and people come from outside
        return (("127.0.0.1", port), ("127.0.0.1", 0))
    if text == "none":
        return ()
    host, _, number = text.rpartition(":")
    if not host or not number.isdecimal() or int(number) > 65535:
        raise UsageError(f"{option} takes HOST:PORT or none, not {text!r}")
    return ((host, int(number)),)
