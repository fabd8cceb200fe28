"""What goes wrong, as one tree of exceptions."""

from __future__ import annotations


class Error(Exception):
    """Any failure of this package that is not a wrong argument."""


class LayoutError(Error, ValueError):
    """Two instances that don't match, or a layout that can't be or has no strides."""


class PlanError(Error):
    """No path leads from the source to the destination, or none within the limits on memory."""


class TransferError(Error):
    """A request of a copy failed. The destination's box is unspecified."""

    hop: int
    """The hop whose request failed, from 0."""
    memory: str
    """The memory that failed, where one is to blame; else the hop's destination."""
    cause: str
    """What the channel said."""

    def __init__(self, message: str, hop: int = 0, memory: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.hop, self.memory, self.cause = hop, memory, cause


class FileFormatError(Error):
    """A file is not what it should be: its header is damaged, or it is too short for it."""


class PeerLost(Error):
    """The other node is gone."""


class Cancelled(Error):
    """The copy was cancelled."""


class Timeout(Error, TimeoutError):
    """A copy's deadline passed, or the timeout of a wait: then the copy runs on."""
