"""Whether results are good enough: requirements, policies, and what came of them."""
