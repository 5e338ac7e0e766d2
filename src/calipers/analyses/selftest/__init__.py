"""Test a benchmark's verifiers: right answers must pass, wrong answers must fail."""
