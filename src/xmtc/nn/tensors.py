"""Tensors and weights as arrays of a file and back. NumPy has no bfloat16: its bits are kept, as uint16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xmtc.artifact.arrays import Later


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


def checked_tensor(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], *kinds: torch.dtype
) -> Tensor:
    """The tensor of a name; ValueError unless it has this shape and one of these types."""
    given = read_tensor(arrays[name])
    if given.dtype not in kinds:
        raise ValueError(f"{name} is of {given.dtype} and not {' or '.join(map(str, kinds))}")
    if given.shape != shape:
        raise ValueError(f"{name} is {tuple(given.shape)} and not {tuple(shape)}")
    return given


@torch.no_grad()
def load_weights(module: nn.Module, arrays: Mapping[str, NDArray[Any]], *, but: str = "") -> None:
    """All weights by their names, but for one."""
    for name, part in module.named_parameters():
        if name != but:
            part.copy_(checked_tensor(arrays, name, part.shape, part.dtype))
