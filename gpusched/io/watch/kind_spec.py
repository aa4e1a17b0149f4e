"""What a reflector needs to be told: the kind, how to decode it, where items go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import attrs

from gpusched import API_VERSION
from gpusched.base.classes import frozen

Item_co = TypeVar("Item_co", covariant=True)
Item_contra = TypeVar("Item_contra", contravariant=True)


class WatchedPage(Protocol[Item_co]):
    """One page of a list."""

    @property
    def items(self) -> Sequence[Item_co]:
        """The objects; those that cannot be believed as whatever stands for them."""

    @property
    def resource_version(self) -> str:
        """Version of the collection."""

    @property
    def continue_token(self) -> str:
        """Empty on the last page."""


class WatchedEvent(Protocol[Item_co]):
    """One line of a watch."""

    @property
    def type(self) -> str:
        """ADDED, MODIFIED, DELETED, BOOKMARK, ERROR or a word of the future."""

    @property
    def item(self) -> Item_co | None:
        """The object of ADDED, MODIFIED and DELETED."""

    @property
    def resource_version(self) -> str:
        """Of the object or bookmark."""

    @property
    def code(self) -> int:
        """HTTP status inside an ERROR, else 0."""

    @property
    def message(self) -> str:
        """Text inside an ERROR, else empty."""


class WatchedCodec(Protocol[Item_co]):
    """Bytes to typed items.

    When the whole is unusable both raise ``errors.Undecodable`` or the ValueError or
    RecursionError of their parser; one bad object among good ones is an item, not an error.
    """

    def decode_page(self, body: bytes) -> WatchedPage[Item_co]:
        """The body of a list."""

    def decode_event(self, line: bytes) -> WatchedEvent[Item_co]:
        """One line of a watch."""


class ResourceEventHandler(Protocol[Item_contra]):
    """Where items go. Both methods are called in the loop and return at once."""

    def replace(self, items: Sequence[Item_contra]) -> None:
        """This is all there is: what is missing here no longer exists."""

    def apply(self, event_type: str, item: Item_contra) -> None:
        """ADDED, MODIFIED or DELETED; may repeat what is known."""


class WatchMetrics(Protocol):
    """What a reflector counts."""

    def relisted(self, resource: str) -> None:
        """A full list was begun, the first one excepted."""

    def watch_transition(self, resource: str, reason: str) -> None:
        """The watch ended or changed; ``reason`` is one of a few words."""


@frozen
class KindSpec:
    """What to list and watch.

    Attributes:
        name: plural resource name, with its group unless it is the core one.
        path: of the collection over all namespaces.
        query: selectors, the same for list and watch, not yet quoted.
        optional: whether the rest goes on when this kind may not be read, or is gone.
    """

    name: str
    path: str
    query: Mapping[str, str] = attrs.Factory(dict)
    optional: bool = False

    @property
    def from_our_manifests(self) -> bool:
        """Whether a CRD of ours has to be there."""
        return self.path.startswith(f"/apis/{API_VERSION}/")
