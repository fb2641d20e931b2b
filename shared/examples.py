"""The examples at the end of a command's help."""


def text(*examples: tuple[str, str]) -> str:
    """Renders (what it does, command) pairs as kubectl does."""
    return "\n".join(["Examples:", *(f"  # {does}\n  {command}" for does, command in examples)])
