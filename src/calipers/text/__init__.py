"""What was meant: filters, which find the answer in a response, or say that there is none."""
