"""What the papers measured, on today's programs in the simulator: see scripts/reproduce.py."""
