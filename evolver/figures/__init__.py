"""The figures of a run (Plotly): the same code draws them on the pages of the dashboard, in the report and for docs."""

from evolver.figures.candidates import forest_figure
from evolver.figures.gaps import gap_figure, seed_dots
from evolver.figures.paper import on_paper, save_png

__all__ = ["forest_figure", "gap_figure", "on_paper", "save_png", "seed_dots"]
