"""How Mix counts in its sentences: people read "1 pod" and "3 pods", never "1 pod(s)"."""


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
