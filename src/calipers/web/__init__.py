"""The report: one HTML file that needs no network, and the parts it is made of."""
