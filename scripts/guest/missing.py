"""What cannot be had here."""


class Missing(Exception):
    """Something that is not installed and cannot be fetched, in one line."""
