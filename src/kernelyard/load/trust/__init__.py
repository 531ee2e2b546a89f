"""Who may give this process code to run, and what speaks for a kernel."""
