"""Every Eval Ever: its records of results and of samples, schema 0.3."""
