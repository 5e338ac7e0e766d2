"""What runs inside Harbor's own interpreter: an environment, an agent and a verifier, of the standard library alone.

Harbor finds it as the package ``calipers_harbor``, lent to it by a folder on its path, and in that as
``calipers_harbor.isolate`` the files that make a container. Nothing here may import the rest of Calipers, whose
libraries were installed for another interpreter.
"""
