"""The modules that run in Harbor's interpreter: an environment, an agent and a verifier.

They are copied into a folder on Harbor's path as the package ``calipers_harbor``, together with the files of
`calipers.isolate` that make a container (``calipers_harbor.isolate``). They may import only the standard library,
Harbor and each other, because the libraries of Calipers are installed for another interpreter.
"""
