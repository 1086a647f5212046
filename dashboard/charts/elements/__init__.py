"""What charts are made of: colours, the empty figure, labels, HTML pieces, static previews."""
