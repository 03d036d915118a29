"""scikit-learn's estimator protocol, so that clone, GridSearchCV and cross_val_score work."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from xmtc.core import config
from xmtc.data.dataset import align_labels, as_dataset
from xmtc.data.topk import TopK
from xmtc.metrics import precision
from xmtc.models.persistence import StoredModel


class SklearnModel(StoredModel):
    """Estimator interface: parameters are the model's settings; the score is P@1."""

    @abstractmethod
    def predict(self, documents: Any, k: int | None = None) -> TopK:
        """The k best labels of each document."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with `deep`, also nested ones as group__name."""
        out: dict[str, Any] = {}
        for name in config.field_types(self.Config):
            value = getattr(self.config, name)
            out[name] = value
            if deep and isinstance(value, config.Settings):
                out.update({f"{name}__{inner}": getattr(value, inner) for inner in config.field_types(type(value))})
        return out

    def set_params(self, **settings: Any) -> Self:
        """Change settings; a trained model must be trained again for them to take effect."""
        self.config = config.changed(self.config, {key.replace("__", "."): value for key, value in settings.items()})
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __sklearn_is_fitted__(self) -> bool:
        return self._labels is not None

    def score(self, X: Any, y: Any) -> float:
        """P@1 on documents and their labels, with the signature of scikit-learn estimators."""
        dataset = as_dataset(X, y)
        assert dataset.labels is not None
        labels, _ = align_labels(dataset, self.labels)
        return float(precision(self.predict(dataset, k=1), labels, 1))
