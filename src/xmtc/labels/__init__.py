"""The label side: what is known about labels beyond the documents that carry them."""
