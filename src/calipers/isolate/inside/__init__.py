"""What runs inside the sandbox, as its process 1. Only the standard library exists there.

These files are compiled outside and sent through a pipe, so nothing of Calipers need be visible inside.
"""
