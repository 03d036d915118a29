"""Conversion between tensors and arrays. NumPy has no bfloat16, so its bits are stored as uint16."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from xmtc.artifact.arrays import Later


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor as an array; bfloat16 becomes uint16."""
    here = tensor.detach().cpu()
    return (here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy()


def read_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor; copied, because arrays of a file are read-only."""
    read = torch.from_numpy(np.array(array))
    return read.view(torch.bfloat16) if read.dtype == torch.uint16 else read


def written_later(tensor: Tensor) -> Later:
    """A tensor that is copied from its device only when it is written."""
    return Later(tuple(tensor.shape), as_array(tensor.flatten()[:0]).dtype, lambda: as_array(tensor))


def checked_tensor(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], *kinds: torch.dtype
) -> Tensor:
    """Read a tensor by name; ValueError unless it has this shape and one of these types."""
    given = read_tensor(arrays[name])
    if given.dtype not in kinds:
        raise ValueError(f"{name} has type {given.dtype}, expected {' or '.join(map(str, kinds))}")
    if given.shape != shape:
        raise ValueError(f"{name} has shape {tuple(given.shape)}, expected {tuple(shape)}")
    return given


@torch.no_grad()
def load_weights(module: nn.Module, arrays: Mapping[str, NDArray[Any]], *, but: str = "") -> None:
    """Load all weights by name, except `but`."""
    for name, part in module.named_parameters():
        if name != but:
            part.copy_(checked_tensor(arrays, name, part.shape, part.dtype))


@contextmanager
def limited_parameters(most: int) -> Iterator[None]:
    """Raise ValueError if the modules that this thread creates have more than `most` parameters together."""
    thread, count = threading.get_ident(), itertools.count(1)

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if threading.get_ident() == thread and next(count) > most:
            raise ValueError(f"the settings describe a network with more than {most} parameters")

    handle = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        handle.remove()
