"""Which tasks separate runs."""
