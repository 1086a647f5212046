"""Reproductions of papers: one package per paper with all that exists only to reproduce it, and the register of papers.

Planners, schedules and cost models answer questions of users and know nothing of this room. Each paper's package has
the artifact's own constants, searches and text forms that no planner needs, the published values, and a `PAPER` that
lists its figures. Importing this room registers policies, rules and models of papers with the planners, which then know
them by name.

Example:
    from engine.reproductions import find_figure, find_paper

    find_figure(find_paper("korthikanti"), "table-5").compare_values()   # ours, published, deviation_percent
"""

from engine.reproductions.papers import Paper, PaperError, PaperFigure, SettingsLink
from engine.reproductions.registry import PAPERS, find_figure, find_paper

__all__ = ["PAPERS", "Paper", "PaperError", "PaperFigure", "SettingsLink", "find_figure", "find_paper"]
