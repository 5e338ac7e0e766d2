"""Metrics: a metric is a reduction per task and an aggregation over tasks."""
