"""Asking hubs what there is, as seldom as may be."""
