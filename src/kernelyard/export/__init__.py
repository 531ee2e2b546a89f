"""What becomes of a kernel where there is no loader, no hub, or no network: wheels, an index of them, bundles."""
