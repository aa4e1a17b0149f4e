"""``gpusched bundle``: one file for a bug report."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from gpusched import __version__
from gpusched.base.clock import SystemClock
from gpusched.base.errors import GpuschedError, UsageError
from gpusched.cli.bundle.archive import write_archive
from gpusched.cli.bundle.collector import BundleCollector, BundleSources
from gpusched.cli.bundle.output_file import open_output
from gpusched.cli.command import Subparsers, add_kubeconfig, connection_choice
from gpusched.cli.inspect.cluster_reader import checked_object_name, with_cluster
from gpusched.io.recordings.pseudonyms import Pseudonyms

_KEY_BYTES: Final = 32
_NAMESPACE: Final = "gpusched-system"
_OWN_METRICS: Final = "http://127.0.0.1:8080/metrics"


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "bundle",
        description="Write one file (.tar.gz) for a bug report: a snapshot of the cluster, recorded "
        "decisions, logs, configuration, metrics and versions, without secrets and environment. "
        "What cannot be read is named in it and left out.",
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--output-file", metavar="FILE", help="where to write (default: stdout); a .tar.gz"
    )
    parser.add_argument(
        "-n", "--namespace", default=None,
        help=f"of the daemon (default: that of this pod, else {_NAMESPACE})",
    )  # fmt: skip
    parser.add_argument(
        "--config", metavar="FILE",
        help="the daemon's configuration (default: the mounted one, else the ConfigMap gpusched)",
    )  # fmt: skip
    parser.add_argument(
        "--decisions", metavar="DIR", help="where gpusched run --record-decisions writes them"
    )
    parser.add_argument(
        "--metrics", metavar="URL",
        help=f"of one daemon (default: {_OWN_METRICS} in a pod; elsewhere every replica is asked "
        "by way of the API server)",
    )  # fmt: skip
    parser.add_argument(
        "--anonymize", action="store_true",
        help="hashes in place of names in snapshot and metrics; what else names things is left out",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Gather and write.

    Raises:
        UsageError: the file cannot be written, or there is none and stdout is a terminal.
    """
    file: str | None = arguments.output_file
    if file is None and sys.stdout.isatty():
        raise UsageError(
            "a bundle is not for a terminal; name a file with --output-file FILE, or redirect "
            "stdout with > FILE"
        )
    choice = connection_choice(arguments)
    clock = SystemClock()
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and arguments.kubeconfig is None
    own = os.environ.get("POD_NAMESPACE", _NAMESPACE) if in_pod else _NAMESPACE
    collector = BundleCollector(
        BundleSources(
            namespace=checked_object_name(arguments.namespace or own, what="namespace"),
            config=arguments.config,
            decisions=Path(arguments.decisions) if arguments.decisions else None,
            metrics=arguments.metrics or (_OWN_METRICS if in_pod else ""),
            pseudonyms=Pseudonyms(secrets.token_bytes(_KEY_BYTES)) if arguments.anonymize else None,
        ),
        clock,
    )
    collector.read_files()
    try:
        with_cluster(choice, collector.read_cluster)
    except GpuschedError as error:
        collector.without_cluster(error)
    about = {
        "gpusched": __version__,
        "API server": collector.server,
        "anonymized": "yes" if arguments.anonymize else "no",
    }
    with open_output(file, compressed=True) as out:
        write_archive(out, collector.parts, collector.missing, now=clock.now(), about=about)
    _print_summary(collector, file)
    return 0


def _print_summary(collector: BundleCollector, file: str | None) -> None:
    size = sum(len(part.body) for part in collector.parts)
    where = f", written to {file}" if file else ""
    _say(
        f"a bundle of {len(collector.parts)} files with {size:,} bytes{where}; CONTENTS.txt lists them"
    )
    for each in collector.complaints:
        _say(f"not inside: {each}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
