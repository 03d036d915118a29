"""Tensors as arrays of a file and back. NumPy has no bfloat16: those numbers are kept by their bits, as uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.store import Later


def as_array(tensor: Tensor) -> NDArray[Any]:
    here = tensor.detach().cpu()
    return (here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy()


def read_tensor(array: NDArray[Any]) -> Tensor:
    """A copy, as arrays of a file must not be written to."""
    read = torch.from_numpy(np.array(array))
    return read.view(torch.bfloat16) if read.dtype == torch.uint16 else read


def written_later(tensor: Tensor) -> Later:
    """A tensor that is brought from its device when its turn to be written comes."""
    return Later(tuple(tensor.shape), as_array(tensor.flatten()[:0]).dtype, lambda: as_array(tensor))
