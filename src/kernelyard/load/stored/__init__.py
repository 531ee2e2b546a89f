"""Variants in the store and its layers: fetched, verified, remembered by stamps, cleared away."""
