"""Rollouts collected from NeMo Gym's agent servers: its flow, with a ledger."""
