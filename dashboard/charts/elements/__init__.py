"""Building blocks of charts: colours, the empty figure, labels, HTML pieces, static previews."""
