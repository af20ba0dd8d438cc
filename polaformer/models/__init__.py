"""Classification and segmentation on any registered backbone, and test-time augmentation."""

from polaformer.models.classifier import ImageClassifier
from polaformer.models.detection_tta import DetectionTTA
from polaformer.models.heads import LinearHead
from polaformer.models.losses import ClassificationLoss
from polaformer.models.preprocessor import ClsPreprocessor
from polaformer.models.segmentation_losses import PixelCrossEntropy, PixelDice
from polaformer.models.segmentation_tta import SegmentationTTA
from polaformer.models.segmentor import Segmentor

__all__ = [
    "ClassificationLoss",
    "ClsPreprocessor",
    "DetectionTTA",
    "ImageClassifier",
    "LinearHead",
    "PixelCrossEntropy",
    "PixelDice",
    "SegmentationTTA",
    "Segmentor",
]
