"""EvSys' modules, as far as they are lent: the registry, the protocol and the built-in metrics."""
