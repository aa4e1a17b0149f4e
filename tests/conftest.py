"""Options of the whole suite: which cluster the conformance tests speak to."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--target`` and its alias ``--kubeconfig``."""
    group = parser.getgroup("contract", "conformance tests in tests/contract")
    group.addoption(
        "--target",
        default="devcluster",
        metavar="devcluster|KUBECONFIG[#CONTEXT]",
        help="the cluster that tests/contract is run against (default: an embedded one)",
    )
    group.addoption(
        "--kubeconfig",
        dest="target",
        metavar="KUBECONFIG[#CONTEXT]",
        help="the same, for a kubeconfig",
    )
