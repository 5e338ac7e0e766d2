"""Harbor's tasks and datasets: directories, their digests, and the registries that hold them."""
