"""Names for shell completion, available without loading a model or a data set."""

from __future__ import annotations


def model_names() -> list[str]:
    """Names of all registered models."""
    from xmtc.models.registry import MODELS

    return list(MODELS)


def default_model() -> str:
    """The model that `xmtc train` uses without --model."""
    from xmtc.models.registry import preferred

    return preferred()


def dataset_names() -> list[str]:
    """Names of the data sets that `xmtc data get` downloads."""
    from xmtc.data.catalogue import CATALOGUE

    return list(CATALOGUE)
