"""Controls that pages share."""
