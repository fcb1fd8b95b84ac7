"""The harness's tools on a live sandbox: what the model is told of them, and what a call does."""

from evolver.tools.dispatch import Outcome, call_tool, tool_specs
from evolver.tools.screen import render_marks, render_tree, to_pixels, to_thousandths

__all__ = ["Outcome", "call_tool", "render_marks", "render_tree", "to_pixels", "to_thousandths", "tool_specs"]
