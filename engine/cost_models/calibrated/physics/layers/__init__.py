"""Times of a block's layers and of the model's ends on one processor: products, attention, traffic, launches."""
