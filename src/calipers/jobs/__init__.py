"""A live run as the user asks for it: what it is told, what it does, what it leaves behind."""
