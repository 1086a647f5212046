"""The guide: chapters in Markdown, readable here and beside the code, and a glossary that follows from the register."""

from dashboard.guide.chapters import CHAPTERS, Chapter, Picture, chapter

__all__ = ["CHAPTERS", "Chapter", "Picture", "chapter"]
