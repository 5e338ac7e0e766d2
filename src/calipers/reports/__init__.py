"""What is shown: the result, and its forms for people and for programs."""
