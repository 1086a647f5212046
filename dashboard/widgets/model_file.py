"""A model of one's own in a file: the questions that a file leaves open, the same wherever it is opened."""

from __future__ import annotations

import streamlit as st

import models
from dashboard.link.document_validation import MOST_MEGABYTES, PROBLEMS, Refused, read, sentence
from dashboard.widgets.controls import whole, whole_field
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from models import Model

__all__ = ["ask_sequence", "draw_model_field"]


def ask_sequence(found: Model, key: str) -> Model:
    """Draw the field for the sequence length of a model's training; return the model with it.

    Nothing is asked of Calculon's files, which give the length.

    Args:
        found: model of a file.
        key: of the field.
    """
    if found.calculon is not None:
        return found
    longest = 0 if found.architecture is None else found.architecture.max_seq or 0
    entered = whole_field("Sequence length of training, tokens", 1, None, found.seq_size, key)
    more = f" Its longest context is {longest:,}." if longest and f"{longest:,}" not in found.seq_size_basis else ""
    st.caption(literal(f"{found.seq_size_basis}{more}"))
    asked = None if entered is None else whole(entered)
    if asked in (None, found.seq_size):
        return found
    document = {**models.to_document(found), "seq_size": asked, "seq_size_basis": "Chosen when the model was imported."}
    try:
        return models.load_document(document, found.name)
    except PROBLEMS as problem:
        st.error(literal(sentence(problem)), icon=":material/error:")
        return found


def draw_model_field(key: str) -> Model | None:
    """Draw the field for a file of a model; return the model, with the sequence length that is asked for, or None.

    Args:
        key: of the field.
    """
    file = file_field(
        "Or a config.json of your own",
        "json",
        key,
        MOST_MEGABYTES,
        help="config.json of Hugging Face, or a model file of Calculon or of this dashboard.",
    )
    if file is None:
        return None
    try:
        found = read_file(read, file.getvalue(), file.name)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return None
    if not isinstance(found, Model):
        st.info("This file has no model; Library and Scenarios open systems, scenarios and launch scripts.")
        return None
    return ask_sequence(found, f"{key}_sequence_{file.file_id}")
