"""Moves data between any two memories of a machine, in any layout, on a path that it chooses.

    import isometry as iso, numpy as np

    with iso.Machine() as m:
        src = m.wrap(np.zeros((32, 224, 224, 3), "u1"), dims="nhwc")
        dst = m.empty(src.dims, "u1", layout="nchw")
        m.copy(src, dst).wait()
        planes = np.asarray(dst)        # zero-copy: shape in the order of dims, strides as laid out
"""

from ._errors import (
    Cancelled,
    Error,
    FileFormatError,
    LayoutError,
    PeerLost,
    PlanError,
    Timeout,
    TransferError,
)
from ._native import VERSION as __version__
from ._native import Event, Instance, Machine, Plan, Topology

__all__ = [
    "Cancelled",
    "Error",
    "Event",
    "FileFormatError",
    "Instance",
    "LayoutError",
    "Machine",
    "PeerLost",
    "Plan",
    "PlanError",
    "Timeout",
    "Topology",
    "TransferError",
    "__version__",
]
