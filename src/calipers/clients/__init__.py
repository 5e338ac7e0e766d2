"""Who answers: models behind servers, on this machine, or written down."""
