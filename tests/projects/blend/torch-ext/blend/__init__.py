"""Nothing is offered; that it can be imported is what tests ask for."""
