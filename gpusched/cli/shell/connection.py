"""How to reach the cluster, by kubectl's options on a command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusched.base.errors import UsageError

if TYPE_CHECKING:
    from gpusched.io.client.connection_choice import ConnectionChoice


def connection_choice(arguments: argparse.Namespace) -> ConnectionChoice:
    """How to reach the cluster, by the options of ``add_kubeconfig``.

    Raises:
        UsageError: they do not go together, or one is refused.
    """
    from gpusched.io.client import connection_choice as choices  # noqa: PLC0415 - loads TLS and more

    if arguments.insecure_skip_tls_verify:
        raise UsageError(
            "--insecure-skip-tls-verify is refused: give --certificate-authority FILE, and "
            "--tls-server-name where the certificate has another name (docs/connecting.md)"
        )
    if bool(arguments.client_certificate) != bool(arguments.client_key):
        raise UsageError("--client-certificate and --client-key are given together or not at all")
    return choices.ConnectionChoice(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        cluster=arguments.cluster,
        user=arguments.user,
        server=arguments.server,
        token=arguments.token,
        authority=arguments.certificate_authority,
        certificate=arguments.client_certificate,
        key=arguments.client_key,
        server_name=arguments.tls_server_name,
        act_as=choices.Impersonation(
            user=getattr(arguments, "as"), groups=tuple(arguments.as_group), uid=arguments.as_uid
        ),
        request_timeout_s=_request_timeout_s(arguments.request_timeout),
    )


def _request_timeout_s(text: str) -> float | None:
    from gpusched.api.meta.duration import NANOSECONDS, parse_duration  # noqa: PLC0415 - as above

    seconds = f"{text}s" if text.isascii() and text.isdigit() else text
    try:
        return (parse_duration(seconds) / NANOSECONDS or None) if text else None
    except ValueError as error:
        raise UsageError(f"--request-timeout: {error}") from error
