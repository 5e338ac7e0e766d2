"""A checkpoint of Hugging Face's transformers, on this machine."""
