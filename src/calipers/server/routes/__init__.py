"""The routes, one small file each."""
