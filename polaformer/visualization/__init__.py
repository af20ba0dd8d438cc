"""Pictures of a run and a page that shows them; importing loads neither torch nor matplotlib."""

from polaformer.visualization.confusion import draw_confusion, top_confusions
from polaformer.visualization.draw import Prediction, draw_curves, draw_predictions
from polaformer.visualization.report import write_report
from polaformer.visualization.results import RunResults, load_results

__all__ = [
    "Prediction",
    "RunResults",
    "draw_confusion",
    "draw_curves",
    "draw_predictions",
    "load_results",
    "top_confusions",
    "write_report",
]
