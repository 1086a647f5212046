"""Errors of a study, its folder or the machines that it runs on."""

from __future__ import annotations

from models.documents import DocumentError

__all__ = ["ClusterError", "FolderError", "StudyCancelled", "StudyError"]


class StudyError(DocumentError):
    """A study that cannot be run or asked; the message is one sentence that says what would be right."""


class FolderError(StudyError):
    """A folder of results that cannot be read or written, or that holds another study."""


class ClusterError(StudyError):
    """Workers that are gone, or that run another version of Shardscape; results in the folder stay valid."""


class StudyCancelled(Exception):  # noqa: N818 - not an error of anyone's
    """The caller asked to stop; the parts that are written stay, and the next run goes on from there."""
