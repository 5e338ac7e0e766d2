"""SkyRL's dumped evaluations."""
