"""Building on other machines: what is sent to them, what runs there, and what comes back."""
