"""Types of NumPy arrays, each named by the dtype of its elements. Shapes are not part of the type."""

from __future__ import annotations

from typing import Any

import numpy as np

Bools = np.ndarray[Any, np.dtype[np.bool_]]
UInt8s = np.ndarray[Any, np.dtype[np.uint8]]
UInt32s = np.ndarray[Any, np.dtype[np.uint32]]
UInt64s = np.ndarray[Any, np.dtype[np.uint64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Float64s = np.ndarray[Any, np.dtype[np.float64]]
AnyArray = np.ndarray[Any, Any]
"""An array whose dtype is known at run time only, such as a column of a user's batch."""
