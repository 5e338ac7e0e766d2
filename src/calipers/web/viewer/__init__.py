"""The viewer: the report's page code, served, over runs of any size and runs that are still going."""
