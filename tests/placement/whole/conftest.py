"""A cluster in a few words, with the invariants checked after each test."""

from tests.session.conftest import given

__all__ = ["given"]
