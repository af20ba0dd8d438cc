"""Pictures of a run and a page that shows them; importing loads neither torch nor matplotlib."""

from polaformer.visualization.class_bars import draw_classes
from polaformer.visualization.confusion import draw_confusion, top_confusions
from polaformer.visualization.curves import draw_curves
from polaformer.visualization.detections import Scene, Thing, draw_detections
from polaformer.visualization.draw import Prediction, draw_predictions
from polaformer.visualization.report import write_report
from polaformer.visualization.results import RunResults, load_results
from polaformer.visualization.segmentations import SegmentedScene, draw_segmentations

__all__ = [
    "Prediction",
    "RunResults",
    "Scene",
    "SegmentedScene",
    "Thing",
    "draw_classes",
    "draw_confusion",
    "draw_curves",
    "draw_detections",
    "draw_predictions",
    "draw_segmentations",
    "load_results",
    "top_confusions",
    "write_report",
]
