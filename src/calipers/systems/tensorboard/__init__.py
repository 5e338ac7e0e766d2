"""TensorBoard: alarms of a training run as events."""
