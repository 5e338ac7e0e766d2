"""Every word that a page or an option uses, in plain English."""
