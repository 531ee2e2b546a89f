"""Nothing is offered; that it compiles is what tests ask for."""
