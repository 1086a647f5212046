"""What layers of a block and the ends of the model take on one processor: products, attention, traffic, launches."""
