"""Classification on top of any registered backbone."""

from polaformer.models.classifier import ImageClassifier
from polaformer.models.heads import LinearHead
from polaformer.models.losses import ClassificationLoss
from polaformer.models.preprocessor import ClsPreprocessor

__all__ = ["ClassificationLoss", "ClsPreprocessor", "ImageClassifier", "LinearHead"]
